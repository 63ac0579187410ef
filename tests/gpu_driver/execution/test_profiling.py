# SPDX-License-Identifier: Apache-2.0
"""Times of executions on a device whose events have none; times that later executions do not change."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.execution.profiling import RecordedProfile
from gpu_driver.execution.recorded import Clocked
from nn_runtime.hal.memory import pages_of_zeros
from nn_runtime.hal.types import UNKNOWN_DURATION, ErrorStatus, HalError
from tests.gpu_driver.drawn import FLOAT, Network
from tests.gpu_driver.graphs import request
from tests.gpu_driver.running import doubling, fresh, prepare

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.interfaces import ExecutionProfile
    from nn_runtime.hal.types import Request
    from nn_runtime.operand import Array


@pytest.fixture
def timeless(opencl_device: Device) -> Device:
    device = fresh(opencl_device)
    device.profile = replace(device.profile, tells_times=False)
    return device


@pytest.fixture
def asked() -> Request:
    return request([np.ones((10, 16), np.float32)], [np.empty((10, 16), np.float32)])


def test_the_time_on_the_device_is_unknown(timeless: Device, asked: Request) -> None:
    prepared = prepare(timeless, doubling(10))
    bound = prepared.create_reusable_execution(asked, True, None)
    assert bound is not None
    for result in (prepared.execute_synchronously(asked, True, None, None), bound.execute_synchronously(None)):
        assert result.timing.time_on_device_ns == UNKNOWN_DURATION
        assert 0 < result.timing.time_in_driver_ns < UNKNOWN_DURATION


def test_there_is_no_profile_and_no_peak(timeless: Device, asked: Request) -> None:
    prepared = prepare(timeless, doubling(10))
    bound = prepared.create_reusable_execution(asked, False, None)
    assert bound is not None
    for profiled in (lambda: prepared.execute_profiled(asked, None, None), lambda: bound.execute_profiled(None)):
        with pytest.raises(HalError, match=f"{timeless.profile.name} .* tells no times of its commands") as caught:
            profiled()
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert timeless.peaks() is None


def stamps_of(profile: ExecutionProfile) -> list[Array]:
    """Return what launches of a profile left of the times of their tasks."""
    assert isinstance(profile, RecordedProfile)
    return [command.stamps for command, _ in profile._events if isinstance(command, Clocked)]


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_profile_stays_as_it_is(opencl_device: Device, is_bound: bool) -> None:
    network = Network(FLOAT, (1, 8, 8, 16), 3)
    network.convolve(16, 3)
    network.convolve(16, 3, is_output=True)
    prepared = prepare(opencl_device, network.graph.model())
    data = [pages_of_zeros(4 * 8 * 8 * 16).view(np.float32).reshape(network.dims) for _ in range(2)]
    asked = request(data[:1], data[1:])
    bound = prepared.create_reusable_execution(asked, False, None)
    assert bound is not None
    profiles = [
        bound.execute_profiled(None)[1] if is_bound else prepared.execute_profiled(asked, None, None)[1]
        for _ in range(3)
    ]
    stamps = [array for profile in profiles for array in stamps_of(profile)]
    assert not any(np.shares_memory(one, other) for one, other in itertools.combinations(stamps, 2))
    if opencl_device.profile.is_cpu:
        assert len(stamps) == len(profiles)

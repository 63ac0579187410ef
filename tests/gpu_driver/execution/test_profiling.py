# SPDX-License-Identifier: Apache-2.0
"""Times of executions on a device whose events have none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.hal.types import UNKNOWN_DURATION, ErrorStatus, HalError
from tests.gpu_driver.graphs import request
from tests.gpu_driver.running import doubling, fresh, prepare

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Request


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

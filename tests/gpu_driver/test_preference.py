# SPDX-License-Identifier: Apache-2.0
"""Execution preferences: the same bits, how many cores a chain takes, how long memory is kept, what a cache holds."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.device import context as context_module
from gpu_driver.device.buffers import readable_bytes
from gpu_driver.device.context import DeviceContext
from gpu_driver.execution.execution_context import ExecutionContext
from gpu_driver.launch import Launch
from gpu_driver.preparation import Preparation
from gpu_driver.prepared_model import PreparedModel
from nn_runtime.codes import OperandCode
from nn_runtime.hal.buffers import BufferRegistry
from nn_runtime.hal.interfaces import CacheRequest
from nn_runtime.hal.types import CACHE_TOKEN_BYTES, ExecutionPreference, HalError, Priority
from tests.gpu_driver.drawn import inverted_residuals
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import CPU_PROFILE, GPU_PROFILE
from tests.gpu_driver.running import doubling, fresh, memory_of, run, run_doubling, until

if TYPE_CHECKING:
    from gpu_driver.driver import Device
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array

FAST, SUSTAINED = ExecutionPreference.FAST_SINGLE_ANSWER, ExecutionPreference.SUSTAINED_SPEED
LOW_POWER = ExecutionPreference.LOW_POWER
FLOAT, QUANT8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM
CONSTANT_BYTES, ROW_BYTES = 64, 64
"""Of `doubling`."""


def prepare(device: Device, model: Model, preference: ExecutionPreference) -> PreparedModel:
    return device.prepare_model(model, preference, Priority.MEDIUM, None, None)


def groups_of(prepared: PreparedModel) -> set[int]:
    """Return how many groups the chains of a model take."""
    static = prepared._graph.static
    assert static is not None
    launches = [command for command in static.segment.commands if isinstance(command, Launch)]
    return {launch.global_size[0] for launch in launches if launch.kernel.name == "chain"}


def test_cores_that_a_model_is_lowered_for() -> None:
    intel = replace(CPU_PROFILE, slug="intel", compute_units=8)
    for device, wanted in (
        (replace(CPU_PROFILE, compute_units=8), 1),
        (intel, 2),
        (replace(intel, compute_units=1), 1),
        (replace(GPU_PROFILE, compute_units=8), 8),
    ):
        assert Preparation(LOW_POWER).profile_of(device) == replace(device, compute_units=wanted)
        assert Preparation(FAST).profile_of(device) == Preparation(SUSTAINED).profile_of(device) == device
        assert Preparation(FAST, quantizes_inputs=True).profile_of(device) == replace(device, quantizes_inputs=True)


@pytest.mark.parametrize("preference", ExecutionPreference)
@pytest.mark.parametrize("closes", [False, True])
def test_kernel_objects_of_one_execution_are_kept_where_pauses_are_short(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch, preference: ExecutionPreference, closes: bool
) -> None:
    """And none of a model that is closed meanwhile."""
    prepared = prepare(opencl_device, doubling(4), preference)
    contexts = [prepared.begin() for _ in range(3)]
    for context in contexts:
        prepared.end(context)
    release = ExecutionContext.release_memory

    def released(context: ExecutionContext) -> None:
        if closes:
            prepared.close()
        release(context)

    monkeypatch.setattr(ExecutionContext, "release_memory", released)
    assert not prepared.release_idle(time.monotonic() + 1)
    assert len(prepared._idle) == (preference == LOW_POWER and not closes)


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("code", [FLOAT, QUANT8], ids=["float32", "quant8"])
def test_every_preference_gives_the_same_bits(opencl_device: Device, code: OperandCode, batches: int) -> None:
    network = inverted_residuals(code, batches)
    source, model = network.data(), network.graph.model()
    results: list[Array] = []
    for preference in ExecutionPreference:
        prepared = prepare(opencl_device, model, preference)
        for _ in range(2):
            results.append(np.zeros(network.dims, source.dtype))
            run(prepared, request([source], [results[-1]]))
        prepared.close()
    assert results[0].any()
    assert all(np.array_equal(result, results[0]) for result in results)


def test_low_power_takes_few_cores(opencl_device: Device) -> None:
    if not opencl_device.profile.is_cpu:
        pytest.skip("chains are for CPU-type devices")
    model = inverted_residuals(FLOAT).graph.model()
    groups = [groups_of(prepare(opencl_device, model, preference)) for preference in (LOW_POWER, FAST, SUSTAINED)]
    cores = opencl_device.profile.compute_units
    few = min(2, cores) if opencl_device.profile.slug == "intel" else 1
    assert groups == [{few}, {cores}, {cores}]


def test_low_power_gives_memory_back_after_a_short_pause(opencl_device: Device) -> None:
    device = fresh(opencl_device)
    kept = prepare(device, doubling(10), FAST)
    run_doubling(kept, 10)
    prepared = prepare(device, doubling(10), LOW_POWER)
    for seed in range(3):
        run_doubling(prepared, 10, seed)
        until(lambda: memory_of(device).allocated_bytes == CONSTANT_BYTES + 3 * 10 * ROW_BYTES)
    assert memory_of(device).peak_bytes == CONSTANT_BYTES + 2 * 3 * 10 * ROW_BYTES
    prepared.close()
    kept.close()
    assert memory_of(device).allocated_bytes == 0


def test_low_power_takes_memory_once_for_runs_that_follow_each_other(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_module, "LOW_POWER_IDLE_SECONDS", 1000.0)
    context = DeviceContext(opencl_device._found.device, opencl_device.profile, idle_seconds=1000.0)
    prepared = PreparedModel(context, doubling(10), BufferRegistry(lambda prepared: None), Preparation(LOW_POWER))
    for seed in range(3):
        run_doubling(prepared, 10, seed)
        assert context.accounts.stats.allocated_bytes == CONSTANT_BYTES + 3 * 10 * ROW_BYTES
    assert not prepared.release_idle(time.monotonic())
    assert context.accounts.stats.allocated_bytes == CONSTANT_BYTES
    run_doubling(prepared, 10)


def test_sustained_speed_keeps_memory_until_another_model_needs_it(opencl_device: Device) -> None:
    context = DeviceContext(opencl_device._found.device, opencl_device.profile, idle_seconds=0.02)
    models = {
        preference: PreparedModel(context, doubling(10), BufferRegistry(lambda prepared: None), Preparation(preference))
        for preference in (FAST, SUSTAINED)
    }
    for prepared in models.values():
        run_doubling(prepared, 10)
    kept = CONSTANT_BYTES + 3 * 10 * ROW_BYTES
    until(lambda: context.accounts.stats.allocated_bytes == kept)
    time.sleep(0.1)
    assert context.accounts.stats.allocated_bytes == kept
    run_doubling(models[SUSTAINED], 10)
    with pytest.raises(HalError, match=readable_bytes(context.profile.global_mem_bytes)):
        _fill(context)
    until(lambda: context.accounts.stats.allocated_bytes == CONSTANT_BYTES)
    run_doubling(models[SUSTAINED], 10)


def _fill(context: DeviceContext) -> None:
    """Ask for as much as there is, which is more than is free."""
    size_bytes = min(context.profile.global_mem_bytes, context.profile.max_alloc_bytes)
    context.accounts.allocated(context.profile.global_mem_bytes)
    try:
        context.allocate(size_bytes)
    finally:
        context.accounts.freed(context.profile.global_mem_bytes)


@pytest.mark.parametrize("preference", ExecutionPreference)
def test_a_preference_is_kept_in_cache_files(opencl_device: Device, preference: ExecutionPreference) -> None:
    with tempfile.TemporaryFile() as model_file, tempfile.TemporaryFile() as data_file:
        cache = CacheRequest((model_file.fileno(),), (data_file.fileno(),), bytes(CACHE_TOKEN_BYTES))
        model = inverted_residuals(QUANT8).graph.model()
        first = opencl_device.prepare_model(model, preference, Priority.MEDIUM, None, cache)
        again = opencl_device.prepare_model_from_cache(None, cache)
        assert again.preference == first.preference == preference
        assert groups_of(again) == groups_of(first)

# SPDX-License-Identifier: Apache-2.0
"""Memory that is given back: when it is idle, and when models and memory domains go."""

from __future__ import annotations

import gc
import random
import time
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.device.context import DeviceContext
from gpu_driver.execution.compiled_graph import MAX_SEGMENTS
from gpu_driver.preparation import Preparation
from gpu_driver.prepared_model import PreparedModel
from nn_runtime.codes import FuseCode, OperationCode
from nn_runtime.hal.buffers import BufferRegistry, ManagedBuffer
from nn_runtime.hal.types import BufferDesc, BufferRole, HalError
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import (
    CONSTANT_BYTES,
    ROW_BYTES,
    doubling,
    memory_of,
    opencl_error,
    prepare,
    run,
    run_doubling,
    run_times,
    transposing,
    until,
)

if TYPE_CHECKING:
    from gpu_driver.device.storage import DeviceStorage
    from gpu_driver.driver import Device

ROLE = [BufferRole(0, 0, 1.0)]


def test_the_watchdog_gives_memory_back_after_idleness(opencl_device: Device) -> None:
    context = DeviceContext(opencl_device._found.device, opencl_device.profile, idle_seconds=0.02)
    prepared = PreparedModel(context, doubling(10), BufferRegistry(lambda prepared: None), Preparation())
    for seed in range(3):
        run_doubling(prepared, 10, seed)
        until(lambda: context.accounts.stats.allocated_bytes == CONSTANT_BYTES)
    assert context.accounts.stats.peak_bytes == CONSTANT_BYTES + 3 * 10 * ROW_BYTES


def test_memory_used_lately_is_kept(device: Device) -> None:
    prepared = prepare(device, doubling(4))
    before = time.monotonic()
    run_doubling(prepared, 4)
    held = memory_of(device).allocated_bytes
    assert prepared.release_idle(before)
    assert memory_of(device).allocated_bytes == held
    assert not prepared.release_idle(time.monotonic() + 1)
    assert memory_of(device).allocated_bytes == CONSTANT_BYTES
    run_doubling(prepared, 4)


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_error_that_is_kept_keeps_no_memory(
    device: Device, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """Its traceback leads to the context of the execution that it is of."""
    prepared = prepare(device, doubling(4))

    def failing(*_: object) -> NoReturn:
        raise opencl_error(cl.status_code.INVALID_KERNEL_ARGS)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", failing)
    with pytest.raises(HalError) as kept:
        run_doubling(prepared, 4)
    assert memory_of(device).allocated_bytes > CONSTANT_BYTES
    if is_closed:
        prepared.close()
    else:
        assert not prepared.release_idle(time.monotonic() + 1)
    assert memory_of(device).allocated_bytes == (0 if is_closed else CONSTANT_BYTES)
    assert "INVALID_KERNEL_ARGS" in str(kept.value)


class Crowd:
    """Models and memory domains that come and go."""

    def __init__(self, device: Device, seed: int) -> None:
        self._device = device
        self._random = random.Random(seed)
        self.models: list[tuple[int, PreparedModel]] = []
        self.buffers: list[ManagedBuffer[DeviceStorage]] = []

    def prepare(self) -> None:
        rows = self._random.randrange(1, 9)
        self.models.append((rows, prepare(self._device, doubling(rows))))

    def run(self) -> None:
        rows, prepared = self._random.choice(self.models)
        run_doubling(prepared, rows)

    def allocate(self) -> None:
        _, prepared = self._random.choice(self.models)
        buffer, _ = self._device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
        assert isinstance(buffer, ManagedBuffer)
        self.buffers.append(buffer)

    def drop_model(self) -> None:
        _, prepared = self.models.pop(self._random.randrange(len(self.models)))
        if self._random.random() < 0.5:
            prepared.close()

    def drop_buffer(self) -> None:
        if self.buffers:
            buffer = self.buffers.pop(self._random.randrange(len(self.buffers)))
            if self._random.random() < 0.5:
                buffer.close()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            if not self.models or self._random.random() < 0.3:
                self.prepare()
            self._random.choice([self.run, self.run, self.allocate, self.drop_model, self.drop_buffer])()

    def leave(self) -> None:
        while self.models or self.buffers:
            if self.models:
                self.drop_model()
            self.drop_buffer()


@pytest.mark.parametrize("seed", range(6))
def test_no_byte_is_left_in_whatever_order_models_come_and_go(device: Device, seed: int) -> None:
    crowd = Crowd(device, seed)
    crowd.live(60)
    assert memory_of(device).allocated_bytes > 0
    crowd.leave()
    gc.collect()
    assert memory_of(device).allocated_bytes == 0


def test_segments_that_left_the_cache_leave_nothing(device: Device) -> None:
    prepared = prepare(device, transposing())

    def turn(rows: int) -> None:
        source = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        result = np.empty((3, rows), np.float32)
        run(prepared, request([source], [result]))
        assert np.array_equal(result, source.T)

    largest = 2 * MAX_SEGMENTS + 5
    for rows in range(1, largest + 1):
        turn(rows)
    turn(1)
    (context,) = prepared._idle
    assert set(context._segments) == prepared._graph.segments
    assert len(context._segments) == MAX_SEGMENTS
    gc.collect()
    assert memory_of(device).allocated_bytes == 2 * largest * 3 * 4


def test_memory_grows_without_the_old_beside_the_new(device: Device) -> None:
    graph = Graph()
    source, between, output = graph.input((0, 16)), graph.temporary((0, 16)), graph.output((0, 16))
    graph.operation(OperationCode.ADD, [source, source, graph.integer(FuseCode.NONE)], between)
    graph.operation(OperationCode.ADD, [between, between, graph.integer(FuseCode.NONE)], output)
    prepared = prepare(device, graph.model())
    run_times(4, prepared, 1)  # warms what is new, in a context of its own
    before = memory_of(device).allocated_bytes
    for rows in (2, 5, 90, 3, 200, 1):
        run_times(4, prepared, rows)
    stats = memory_of(device)
    assert stats.allocated_bytes == stats.peak_bytes == before + 3 * 199 * ROW_BYTES

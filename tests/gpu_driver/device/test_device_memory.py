# SPDX-License-Identifier: Apache-2.0
"""Bytes on the device and bytes moved: counted to the last one."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.device.device_memory import Accounts, DeviceBuffer, MemoryStats
from gpu_driver.kernel import Packed
from gpu_driver.launch import Launch
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.hal.memory import pages_of_zeros
from nn_runtime.hal.types import ErrorStatus, HalError
from tests.gpu_driver.drawn import inverted_residuals
from tests.gpu_driver.graphs import Graph, request
from tests.gpu_driver.running import CONSTANT_BYTES, ROW_BYTES, doubling, memory_of, prepare, run, run_doubling

if TYPE_CHECKING:
    from gpu_driver.driver import Device


def test_every_byte_is_counted(device: Device) -> None:
    rows = 10
    size = rows * ROW_BYTES
    prepared = prepare(device, doubling(rows))
    # Preparation keeps the constants alone, whether it had to warm programs or not.
    assert memory_of(device).allocated_bytes == CONSTANT_BYTES
    assert memory_of(device).written_bytes == CONSTANT_BYTES
    for runs in (1, 2, 3):
        run_doubling(prepared, rows)
        stats = memory_of(device)
        assert stats.allocated_bytes == CONSTANT_BYTES + 3 * size  # input, temporary, output
        assert (stats.written_bytes, stats.read_bytes) == (CONSTANT_BYTES + runs * size, runs * size)
    prepared.close()
    del prepared
    gc.collect()
    stats = memory_of(device)
    assert stats == MemoryStats(0, CONSTANT_BYTES + 3 * size, CONSTANT_BYTES + 3 * size, 3 * size)


def test_statistics_of_a_device(device: Device) -> None:
    assert device.statistics() == {}
    run_doubling(prepare(device, doubling(4)), 4)
    statistics = device.statistics()
    assert list(statistics) == [
        "programs_built", "programs_loaded", "programs_shared", "programs_stored", "build_seconds", "load_seconds",
        "models_from_cache", "models_saved", "allocated_bytes", "peak_bytes", "written_bytes", "read_bytes",
        "in_place_peak_bytes",
    ]  # fmt: skip
    assert statistics["programs_built"] + statistics["programs_loaded"] >= 1
    assert statistics["read_bytes"] == 4 * ROW_BYTES


def test_host_memory_that_is_used_in_place_is_counted_apart(device: Device) -> None:
    context = device.context()
    data = pages_of_zeros(1 << 16)
    buffer = context.in_place(data, is_written=True)
    assert (buffer is not None) == bool(device.profile.uses_host_memory)
    assert device.statistics()["in_place_peak_bytes"] == (0 if buffer is None else data.nbytes)
    assert memory_of(device).peak_bytes == 0


def test_equal_constants_are_kept_once(device: Device) -> None:
    context = device.context()
    data = np.arange(300, dtype=np.float32)
    first = context.constant(Packed(data))
    assert context.constant(Packed(data[:200], data[200:])) is first
    assert memory_of(device) == MemoryStats(1200, 1200, 1200, 0)
    del first
    assert memory_of(device).allocated_bytes == 0


def test_parts_of_a_constant_lie_one_after_the_other(device: Device) -> None:
    context = device.context()
    parts = np.arange(5, dtype=np.float32), np.zeros(0, np.int32), np.arange(12, dtype=np.uint8).reshape(3, 4).T
    buffer = context.constant(Packed(*parts))
    back = np.empty(32, np.uint8)
    buffer.read(context.queue, back).wait()
    assert back.tobytes() == b"".join(part.tobytes() for part in parts)


def test_the_host_forgets_constants_that_the_device_has(device: Device) -> None:
    prepared = prepare(device, inverted_residuals(OperandCode.TENSOR_FLOAT32).graph.model())
    static = prepared._graph.static
    assert static is not None
    launches = [command for command in static.segment.commands if isinstance(command, Launch)]
    packed = [one for launch in launches for one in launch.arguments if isinstance(one, Packed)]
    assert packed or not device.profile.builds_chains
    assert sum(one.size_bytes for one in packed) == 0
    assert not any(launch.steps for launch in launches)


def test_parts_of_a_buffer_are_written_and_read(device: Device) -> None:
    context = device.context()
    buffer = context.allocate(16)
    for offset, part in ((0, np.arange(16)), (5, np.array([77, 78])), (15, np.array([99]))):
        buffer.write(context.queue, part.astype(np.uint8), offset).wait()
    back = np.zeros(12, np.uint8)
    buffer.read(context.queue, back, 4).wait()
    assert back.tolist() == [4, 77, 78, 7, 8, 9, 10, 11, 12, 13, 14, 99]
    assert (memory_of(device).written_bytes, memory_of(device).read_bytes) == (19, 12)


def test_buffers_end_with_their_last_reference(device: Device) -> None:
    buffer = device.context().allocate(0)
    assert isinstance(buffer, DeviceBuffer)
    assert memory_of(device).allocated_bytes == 1
    other = buffer
    del buffer
    assert memory_of(device).allocated_bytes == 1
    del other
    assert memory_of(device).allocated_bytes == 0
    held = device.context().allocate(500)
    del held
    held = device.context().allocate(7)
    assert memory_of(device) == MemoryStats(held.size_bytes, 500, 0, 0)


def test_what_has_ended_is_not_in_the_peak() -> None:
    accounts = Accounts()
    for size in (500, 7, 501):
        accounts.allocated(size)
        accounts.freed(size)
    assert accounts.stats == MemoryStats(0, 501, 0, 0)


def test_a_buffer_may_end_while_its_thread_counts() -> None:
    """Garbage is collected wherever something is made: here, with the lock held."""
    accounts = Accounts()
    accounts.allocated(500)

    def count() -> None:
        with accounts._lock:
            accounts.freed(500)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert accounts.stats.allocated_bytes == 0


def test_an_execution_that_ends_after_its_model_was_closed_keeps_no_memory(device: Device) -> None:
    prepared = prepare(device, doubling(10))
    context = prepared.begin()
    context.boundary(0, ROW_BYTES)
    prepared.close()
    assert memory_of(device).allocated_bytes == ROW_BYTES
    prepared.end(context)
    del context
    gc.collect()
    assert memory_of(device).allocated_bytes == 0


def test_temporaries_together_larger_than_a_buffer_lie_in_several(device: Device) -> None:
    """X + x, then x + 2x with both alive: two temporaries at once, of which a buffer holds one."""
    rows = 2**10
    size = rows * ROW_BYTES
    device.profile = replace(device.profile, max_alloc_bytes=size + size // 2)
    graph = Graph()
    source, output = graph.input((rows, 16)), graph.output((rows, 16))
    twice, thrice = graph.temporary((rows, 16)), graph.temporary((rows, 16))
    none = graph.integer(FuseCode.NONE)
    graph.operation(OperationCode.ADD, [source, source, none], twice)
    graph.operation(OperationCode.ADD, [source, twice, none], thrice)
    graph.operation(OperationCode.MUL, [twice, thrice, none], output)
    prepared = prepare(device, graph.model())
    data, result = np.arange(rows * 16, dtype=np.float32).reshape(rows, 16) % 9, np.empty((rows, 16), np.float32)
    run(prepared, request([data], [result]))
    assert np.array_equal(result, 6 * data * data)
    assert memory_of(device).allocated_bytes == 4 * size


def test_an_input_that_is_too_short_is_never_filled_up_with_older_data(device: Device) -> None:
    """An array may shrink behind a request that was checked before."""
    graph = Graph()
    source, output = graph.input((4,), OperandCode.TENSOR_FLOAT32), graph.output((4,))
    graph.operation(OperationCode.ADD, [source, source, graph.integer(FuseCode.NONE)], output)
    prepared = prepare(device, graph.model())
    data, result = np.ones(4, np.float32), np.empty(4, np.float32)
    asked = request([data], [result])
    run(prepared, asked)
    data.resize(2, refcheck=False)
    with pytest.raises(HalError) as caught:
        run(prepared, asked)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT

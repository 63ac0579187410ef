# SPDX-License-Identifier: Apache-2.0
"""Transfers through page-locked memory: the same bytes, no piece in two hands, none lost."""

from __future__ import annotations

import gc
import itertools
import math
import threading
import time
import weakref
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.device import pinned
from gpu_driver.device.context import DeviceContext
from gpu_driver.device.copy_threads import CopyThreads
from gpu_driver.device.pinned import LEAST_BYTES, PIECE_BYTES, THREAD_BYTES, Piece, parts_of
from gpu_driver.execution.graph_run import Commands
from nn_runtime.codes import DeviceTypeCode
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, ErrorStatus, HalError
from tests.gpu_driver.graphs import request
from tests.gpu_driver.profiles import GPU_PROFILE
from tests.gpu_driver.running import (
    at_once,
    discrete,
    doubling,
    ended,
    filled,
    fresh,
    memory_of,
    opencl_error,
    prepare,
    run,
    run_doubling,
    start_python,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.pinned import PinnedStaging
    from gpu_driver.driver import Device
    from nn_runtime.operand import Array

ROW_BYTES = 64
LARGE_ROWS = 5 * PIECE_BYTES // ROW_BYTES + 1
"""Of `doubling`: its arrays are larger than a piece for each thread."""
BORDERS = (
    *(border + by for border in (LEAST_BYTES, THREAD_BYTES, 2 * THREAD_BYTES, PIECE_BYTES) for by in (-1, 0, 1)),
    *(3 * THREAD_BYTES + 7, 4 * PIECE_BYTES - 1, 4 * PIECE_BYTES, 4 * PIECE_BYTES + 1, 9 * PIECE_BYTES + 4097),
)


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """A device with memory of its own, with a context of its own."""
    return discrete(opencl_device)


def staging_of(device: Device) -> PinnedStaging:
    """Return a device's staging, with helpers also where there is one processor."""
    staging = device.context().staging
    assert staging is not None
    staging._threads = CopyThreads(pinned.MOST_THREADS - 1)
    return staging


def taken(staging: PinnedStaging) -> Piece:
    piece = staging.take(lambda: True)
    assert piece is not None
    return piece


def all_are_back(staging: PinnedStaging) -> bool:
    gc.collect()
    return set(staging._free) == set(staging._pieces) and len(staging._free) == len(staging._pieces)


def drawn(size_bytes: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


def written(device: Device, staging: PinnedStaging, data: Array) -> DeviceBuffer:
    """Return a buffer that data was written to."""
    context, events = device.context(), deque[cl.Event]()
    buffer = context.allocate(data.nbytes)
    staging.write(context.queue, buffer, data, lambda _, event: events.append(event))
    events[-1].wait()
    return buffer


def read_plainly(device: Device, buffer: DeviceBuffer) -> Array:
    data = np.zeros(buffer.size_bytes, np.uint8)
    buffer.read(device.context().queue, data).wait()
    return data


# Which arrays, and in what parts


def test_who_has_staging(opencl_device: Device, device: Device) -> None:
    assert fresh(opencl_device).context().staging is None
    assert device.context().staging is not None
    assert not GPU_PROFILE.is_discrete
    assert replace(GPU_PROFILE, host_unified_memory=False).is_discrete
    assert not replace(GPU_PROFILE, host_unified_memory=False, type=DeviceTypeCode.CPU).is_discrete


def test_small_arrays_make_no_detour(device: Device) -> None:
    staging = staging_of(device)
    assert pinned.staging_of(staging, LEAST_BYTES - 1) is None
    assert pinned.staging_of(staging, LEAST_BYTES) is staging
    assert pinned.staging_of(None, LEAST_BYTES) is None


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("size_bytes", [1, *BORDERS])
def test_parts_are_an_array(size_bytes: int, threads: int) -> None:
    parts = parts_of(size_bytes, threads)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == size_bytes
    assert all(0 < part.stop - part.start <= PIECE_BYTES for part in parts)
    assert all(part.start % 4096 == 0 for part in parts)  # at a page, if the array does
    assert len(parts) <= threads * -(-size_bytes // (threads * PIECE_BYTES))


@pytest.mark.parametrize("size_bytes", BORDERS)
def test_bytes_arrive_and_come_back(device: Device, size_bytes: int) -> None:
    staging, context = staging_of(device), device.context()
    data = drawn(size_bytes)
    buffer = written(device, staging, data)
    assert np.array_equal(read_plainly(device, buffer), data)
    for seed in range(2):
        data = drawn(size_bytes, seed)
        buffer.write(context.queue, data).wait()
        back, sizes = np.zeros(size_bytes, np.uint8), list[int]()
        staging.read(context.queue, buffer, back, lambda size, _, sizes=sizes: sizes.append(size))  # type: ignore[misc]
        assert np.array_equal(back, data)
        assert sum(sizes) == size_bytes
    assert all_are_back(staging)


def test_a_buffer_larger_than_the_array_keeps_its_end(device: Device) -> None:
    staging, context = staging_of(device), device.context()
    data = drawn(3 * PIECE_BYTES)
    buffer = written(device, staging, data)
    part = drawn(PIECE_BYTES + 12, seed=1).view(np.float32).reshape(1, -1)
    staging.write(context.queue, buffer, part, lambda _size, _event: None)
    context.queue.finish()
    wanted = np.concatenate([part.reshape(-1).view(np.uint8), data[part.nbytes :]])
    assert np.array_equal(read_plainly(device, buffer), wanted)


def test_transfers_are_told_in_the_order_in_which_they_run(device: Device) -> None:
    staging, context = staging_of(device), device.context()
    buffer = context.allocate(8 * PIECE_BYTES)
    data = drawn(buffer.size_bytes)
    for copy in (staging.write, staging.read):
        events: list[cl.Event] = []
        copy(context.profiling_queue, buffer, data, lambda _, event, events=events: events.append(event))  # type: ignore[misc]
        events[-1].wait()
        starts = [event.profile.start for event in events]
        assert starts == sorted(starts)


# Pieces and their transfers


class Held:
    """Nothing that is enqueued behind this runs before `release`."""

    def __init__(self, device: Device) -> None:
        context = device.context()
        self._gate = cl.UserEvent(context.context)
        self._barrier = cl.enqueue_barrier(context.queue, wait_for=[self._gate])

    def release(self) -> None:
        self._gate.set_status(cl.command_execution_status.COMPLETE)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_piece_is_used_again_when_its_transfer_is_over(
    device: Device, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(pinned, "MOST_PIECES", most)
    staging, context = staging_of(device), device.context()
    written(device, staging, np.zeros(most * PIECE_BYTES * 4, np.uint8))  # all pieces are there
    data = drawn(8 * PIECE_BYTES)
    buffer, sizes = context.allocate(data.nbytes), list[int]()
    held = Held(device)
    thread = threading.Thread(
        target=staging.write, args=(context.queue, buffer, data, lambda size, _: sizes.append(size))
    )
    thread.start()
    until(lambda: len(sizes) >= most)
    time.sleep(0.02)
    meanwhile = len(sizes)
    held.release()
    thread.join(60)
    context.queue.finish()
    assert meanwhile == most
    assert np.array_equal(read_plainly(device, buffer), data)
    assert len(staging._pieces) == most
    assert all_are_back(staging)


def test_new_pieces_rather_than_waiting(device: Device) -> None:
    """And those that somebody lost are nobody's loss."""
    staging, context = staging_of(device), device.context()
    data = drawn(12 * PIECE_BYTES)
    buffer = context.allocate(data.nbytes)
    for _ in range(pinned.MOST_PIECES):
        taken(staging)
    gc.collect()
    held = Held(device)
    staging.write(context.queue, buffer, data, lambda _size, _event: None)
    assert len(staging._pieces) == 12
    held.release()
    context.queue.finish()
    assert np.array_equal(read_plainly(device, buffer), data)
    assert all_are_back(staging)


@pytest.mark.parametrize("status", [cl.command_execution_status.COMPLETE, cl.status_code.OUT_OF_RESOURCES])
def test_a_piece_whose_transfer_is_over_rests(device: Device, status: int) -> None:
    """However it ended: that is a matter of the execution that it was for."""
    staging = staging_of(device)
    piece, event = taken(staging), cl.UserEvent(device.context().context)
    assert piece.is_idle
    piece.event = event
    assert not piece.is_idle
    event.set_status(status)
    assert piece.is_idle
    staging.give_back(piece)
    assert taken(staging) is piece


def test_another_piece_is_one_that_rests(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "MOST_PIECES", 2)
    staging, context = staging_of(device), device.context()
    buffer, data = context.allocate(2 * THREAD_BYTES), drawn(2 * THREAD_BYTES)  # in two parts
    held = Held(device)
    staging.write(context.queue, buffer, data, lambda _size, _event: None)
    order = list(staging._free)
    for _ in range(3):
        assert staging.take_another() is None
        assert list(staging._free) == order
    held.release()
    context.queue.finish()
    pieces = {staging.take_another(), staging.take_another()}
    assert pieces == set(staging._pieces)
    assert staging.take_another() is None


def test_who_has_pieces_does_not_wait_for_more(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions that each have some of them would else wait for each other."""
    monkeypatch.setattr(pinned, "MOST_PIECES", 3)
    staging, context = staging_of(device), device.context()
    sizes = [size for size in BORDERS if size > 2 * PIECE_BYTES]
    buffers = [written(device, staging, drawn(size, size)) for size in sizes]

    def copy(size: int, buffer: DeviceBuffer) -> None:
        for _ in range(3):
            back = np.zeros(size, np.uint8)
            staging.read(context.queue, buffer, back, lambda _size, _event: None)
            assert np.array_equal(back, drawn(size, size))
            staging.write(context.queue, buffer, back, lambda _size, _event: None)

    works: list[Callable[[], None]] = [partial(copy, *pair) for pair in zip(sizes, buffers, strict=True)]
    assert at_once(works) == []
    assert len(staging._pieces) <= 3
    context.queue.finish()
    assert all_are_back(staging)


def test_what_is_idle_is_given_back(opencl_device: Device) -> None:
    before = set(threading.enumerate())
    profile = discrete(opencl_device).profile
    context = DeviceContext(opencl_device._found.device, profile, idle_seconds=0.05)
    staging = context.staging
    assert staging is not None
    staging._threads = CopyThreads(3)
    buffer, data = context.allocate(8 * PIECE_BYTES), drawn(8 * PIECE_BYTES)
    for _ in range(2):
        staging.write(context.queue, buffer, data, lambda _size, _event: None)
        assert len(staging._pieces) > 0
        context.queue.finish()
        until(lambda: not staging._pieces and set(threading.enumerate()) <= before)
    piece = taken(staging)
    time.sleep(0.2)
    assert list(staging._pieces) == [piece]


def test_what_is_used_is_not_given_back(device: Device) -> None:
    """Pieces that somebody has, whose transfer runs, or that were used since."""
    staging, context = staging_of(device), device.context()
    data = drawn(2 * PIECE_BYTES)
    buffer, held, before = context.allocate(data.nbytes), Held(device), time.monotonic()
    staging.write(context.queue, buffer, data, lambda _size, _event: None)
    count = len(staging._pieces)
    assert count > 1
    assert staging.release_idle(math.inf)
    assert len(staging._pieces) == count
    held.release()
    context.queue.finish()
    assert np.array_equal(read_plainly(device, buffer), data)
    assert staging.release_idle(before)
    assert len(staging._pieces) == count
    piece = taken(staging)
    assert staging.release_idle(math.inf)
    assert list(staging._pieces) == [piece]
    staging.give_back(piece)
    del piece
    assert not staging.release_idle(math.inf)
    assert not staging._pieces


def test_no_more_threads_copy_than_there_are_processors(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    for processors, others in ((1, 0), (2, 1), (64, pinned.MOST_THREADS - 1)):
        monkeypatch.setattr(pinned, "usable_processors", lambda processors=processors: processors)
        other = discrete(device)
        staging = other.context().staging
        assert staging is not None
        written(other, staging, drawn(4 * PIECE_BYTES))
        started = [thread for thread in set(threading.enumerate()) - before if thread.name.endswith("copies")]
        assert len(started) == others
        staging._threads.end()
        until(lambda started=started: not any(thread.is_alive() for thread in started))  # type: ignore[misc]


def test_memory_is_given_back_with_the_context(device: Device) -> None:
    prepared = prepare(device, doubling(LARGE_ROWS))
    run_doubling(prepared, LARGE_ROWS)
    staging = device.context().staging
    assert staging is not None
    seen = [weakref.ref(staging), *(weakref.ref(piece) for piece in staging._pieces)]
    assert len(seen) > 1
    prepared.close()
    device.close()
    del prepared, staging
    gc.collect()
    assert [one() for one in seen] == [None] * len(seen)


# Executions


@pytest.mark.parametrize("rows", [1, LEAST_BYTES // ROW_BYTES - 1, LEAST_BYTES // ROW_BYTES, LARGE_ROWS])
@pytest.mark.parametrize("way", ["plain", "measured", "bound", "burst"])
def test_models_compute_the_same(device: Device, rows: int, way: str) -> None:
    prepared = prepare(device, doubling(rows))
    source, result = np.zeros((rows, 16), np.float32), np.zeros((rows, 16), np.float32)
    asked = request([source], [result])
    bound, burst = prepared.create_reusable_execution(asked, False, None), prepared.configure_execution_burst()
    before = memory_of(device)
    for seed in range(3):
        source[:] = np.random.default_rng(seed).standard_normal((rows, 16))
        if way == "bound":
            assert bound is not None
            bound.execute_synchronously(None)
        elif way == "burst":
            burst.execute(asked, False, None, None)
        else:
            timing = run(prepared, asked, way == "measured").timing
            assert way == "plain" or 0 < timing.time_on_device_ns <= timing.time_in_driver_ns
        assert np.array_equal(result, 2 * source)
    after = memory_of(device)
    assert after.written_bytes - before.written_bytes == after.read_bytes - before.read_bytes == 3 * source.nbytes


def test_arrays_that_may_not_be_written_or_are_not_contiguous(device: Device) -> None:
    context, staging = device.context(), staging_of(device)
    source = np.arange(LEAST_BYTES, dtype=np.float32).reshape(64, -1)
    for data in (source.T, source[::2], source[:, 3:], np.broadcast_to(source[:1], source.shape)):
        assert not data.flags.c_contiguous
        buffer = context.allocate(data.nbytes)
        commands = Commands(context.queue, staging, None)
        commands.write(buffer, data)
        commands.wait()
        assert read_plainly(device, buffer).tobytes() == data.tobytes()
    prepared = prepare(device, doubling(LARGE_ROWS))
    given = np.ones((LARGE_ROWS, 16), np.float32)
    given.flags.writeable = False
    result = np.zeros((LARGE_ROWS, 16), np.float32)
    run(prepared, request([given], [result]))
    assert (result == 2).all()


def test_a_profile_has_a_row_for_an_array(device: Device) -> None:
    prepared = prepare(device, doubling(LARGE_ROWS))
    source, result = np.ones((LARGE_ROWS, 16), np.float32), np.empty((LARGE_ROWS, 16), np.float32)
    _, profile = prepared.execute_profiled(request([source], [result]), None, None)
    assert [row.operations for row in profile.rows] == [(), (0,), (1,), ()]
    first, last = profile.rows[0], profile.rows[-1]
    assert (first.kernel, first.bytes_moved) == ("write", source.nbytes)
    assert (last.kernel, last.bytes_moved) == ("read", source.nbytes)
    assert all(0 <= row.start_ns < row.end_ns for row in profile.rows)


@pytest.mark.parametrize("most", [2, pinned.MOST_PIECES])
def test_eight_threads_at_once(device: Device, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(pinned, "MOST_PIECES", most)
    staging = staging_of(device)
    rows = [LEAST_BYTES // ROW_BYTES, 20_000, LARGE_ROWS, 90_001]
    models = [prepare(device, doubling(one)) for one in rows]

    def work(at: int) -> None:
        for turn in range(4):
            run_doubling(models[at % 4], rows[at % 4], seed=8 * turn + at)

    assert at_once([partial(work, at) for at in range(8)]) == []
    assert len(staging._pieces) <= most
    assert all_are_back(staging)


@pytest.mark.parametrize("size_bytes", [4, LEAST_BYTES, 5 * PIECE_BYTES + 4])
def test_memory_domains(device: Device, size_bytes: int) -> None:
    rows = -(-size_bytes // ROW_BYTES)
    prepared = prepare(device, doubling(rows))
    buffer, _ = device.allocate(BufferDesc(), [prepared], [BufferRole(0, 0, 1.0)], [])
    data = drawn(rows * ROW_BYTES)
    back = SharedMemory.create(data.nbytes)
    buffer.copy_from(filled(data), ())
    buffer.copy_to(back)
    assert np.array_equal(back.array(), data)
    buffer.close()


# Failures


@pytest.mark.parametrize("at", [0, 1, 4, 9, 12, 19])
@pytest.mark.parametrize("error", ["opencl", "interrupt"])
@pytest.mark.parametrize("after", [False, True])
def test_a_transfer_that_fails_leaves_the_model_usable(
    device: Device, monkeypatch: pytest.MonkeyPatch, at: int, error: str, after: bool
) -> None:
    """At any of the parts, ten each way: before it is enqueued or after, in whatever thread."""
    staging, rows = staging_of(device), 10 * PIECE_BYTES // ROW_BYTES - 1
    prepared = prepare(device, doubling(rows))
    whole, lock, calls = cl.enqueue_copy, threading.Lock(), 0

    def failing(*arguments: object, **options: object) -> cl.Event:
        nonlocal calls
        with lock:
            calls += 1
            fails = calls == at + 1
        event = whole(*arguments, **options) if after or not fails else None
        if fails:
            raise opencl_error(cl.status_code.OUT_OF_RESOURCES) if error == "opencl" else KeyboardInterrupt
        assert event is not None
        return event

    for _ in range(3):
        calls = 0
        with monkeypatch.context() as patch:
            patch.setattr(cl, "enqueue_copy", failing)
            with pytest.raises(HalError if error == "opencl" else KeyboardInterrupt) as caught:
                run_doubling(prepared, rows)
        if isinstance(caught.value, HalError):
            assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        del caught
        assert all_are_back(staging)
    run_doubling(prepared, rows, seed=1)


@pytest.mark.parametrize(
    ("name", "at"), [("write", 0), ("write", 5), ("read", 0), ("read", 2), ("read", 5), ("read", 99)]
)
def test_a_transfer_that_fails_loses_no_piece(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    """Others may wait for one. The last fails where the array cannot be written."""
    monkeypatch.setattr(pinned, "MOST_PIECES", 4)
    staging, context = staging_of(device), device.context()
    pieces = [taken(staging) for _ in range(4)]
    while pieces:
        staging.give_back(pieces.pop())
    buffer, data = context.allocate(10 * PIECE_BYTES), drawn(10 * PIECE_BYTES)
    data.flags.writeable = at < 10
    whole, calls = cl.enqueue_copy, itertools.count()

    def failing(*arguments: object, **options: object) -> cl.Event:
        if next(calls) == at:
            raise opencl_error(cl.status_code.OUT_OF_RESOURCES)
        return whole(*arguments, **options)

    monkeypatch.setattr(cl, "enqueue_copy", failing)
    with pytest.raises(cl.Error if at < 10 else ValueError) as caught:
        getattr(staging, name)(context.queue, buffer, data, lambda _size, _event: None)
    del caught
    assert all_are_back(staging)
    assert len(staging._pieces) == 4


@pytest.mark.parametrize("name", ["write", "read"])
def test_nobody_gets_a_piece_whose_transfer_was_given_up_but_runs(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    staging, context, began = staging_of(device), device.context(), threading.Event()
    buffer, data = context.allocate(LEAST_BYTES), drawn(LEAST_BYTES)
    whole, held, events = cl.enqueue_copy, Held(device), deque[cl.Event]()

    def interrupted(*arguments: object, **options: object) -> None:
        events.append(whole(*arguments, **options))
        began.set()
        raise KeyboardInterrupt

    def transfer() -> None:
        with pytest.raises(KeyboardInterrupt):
            getattr(staging, name)(context.queue, buffer, data, lambda _size, _event: None)

    monkeypatch.setattr(cl, "enqueue_copy", interrupted)
    thread = threading.Thread(target=transfer)
    thread.start()
    assert began.wait(60)
    time.sleep(0.02)
    meanwhile = list(staging._free)
    held.release()
    thread.join(60)
    assert meanwhile == []
    assert all_are_back(staging)


def test_who_waits_when_a_piece_is_lost_gets_a_new_one(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "MOST_PIECES", 1)
    staging, found = staging_of(device), deque[Piece]()
    pieces = [taken(staging)]
    thread = threading.Thread(target=lambda: found.append(taken(staging)), daemon=True)
    thread.start()
    time.sleep(0.02)
    assert not found
    pieces.clear()
    thread.join(60)
    assert len(found) == len(staging._pieces) == 1


@pytest.mark.parametrize("is_caller", [True, False])
def test_a_lost_piece_is_not_waited_for_by_its_own_transfer(
    device: Device, monkeypatch: pytest.MonkeyPatch, is_caller: bool
) -> None:
    """The error has it until all threads have left: those that wait for a piece have to, too."""
    monkeypatch.setattr(pinned, "MOST_PIECES", 1)
    staging, context = staging_of(device), device.context()
    buffer, data, lost = context.allocate(10 * PIECE_BYTES), drawn(10 * PIECE_BYTES), threading.Event()
    give_back = staging.give_back

    def interrupted(piece: Piece) -> None:
        if not lost.is_set() and (threading.current_thread() is thread) == is_caller:
            lost.set()
            raise KeyboardInterrupt
        give_back(piece)

    def transfer() -> None:
        with pytest.raises(KeyboardInterrupt):
            staging.write(context.queue, buffer, data, lambda _size, _event: None)

    monkeypatch.setattr(staging, "give_back", interrupted)
    thread = threading.Thread(target=transfer, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert lost.is_set()
    gc.collect()
    staging.write(context.queue, buffer, data, lambda _size, _event: None)
    assert np.array_equal(read_plainly(device, buffer), data)
    assert all_are_back(staging)


@pytest.mark.parametrize("rows", [LEAST_BYTES // ROW_BYTES, LARGE_ROWS])
def test_page_locked_memory_that_is_not_to_be_had(device: Device, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    prepared, staging = prepare(device, doubling(rows)), staging_of(device)

    def failing(*arguments: object, **options: object) -> None:
        raise opencl_error(cl.status_code.OUT_OF_HOST_MEMORY)

    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_map_buffer", failing)
        with pytest.raises(HalError) as caught:
            run_doubling(prepared, rows)
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    del caught
    assert all_are_back(staging)
    run_doubling(prepared, rows)


def test_no_more_page_locked_memory_than_there_is(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers share what they have, however little."""

    def failing(*arguments: object, **options: object) -> None:
        raise opencl_error(cl.status_code.OUT_OF_HOST_MEMORY)

    staging, context = staging_of(device), device.context()
    staging.give_back(taken(staging))
    monkeypatch.setattr(cl, "enqueue_map_buffer", failing)
    data = drawn(8 * PIECE_BYTES)
    back = np.zeros_like(data)
    staging.read(context.queue, written(device, staging, data), back, lambda _size, _event: None)
    assert np.array_equal(back, data)
    assert len(staging._pieces) == 1
    assert all_are_back(staging)


# The end of the interpreter

_ENDINGS = {
    "models alive": """
prepared = prepare(device, doubling(rows))
run_doubling(prepared, rows)
assert device.context().staging._pieces
""",
    "threads that run": """
import threading, time
prepared = prepare(device, doubling(rows))
started = threading.Barrier(5)
def work():
    run_doubling(prepared, rows)
    started.wait()
    while True:
        run_doubling(prepared, rows)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.02)
""",
    "a fork": """
import os, warnings
prepared = prepare(device, doubling(rows))
run_doubling(prepared, rows)
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: there are threads
child = os.fork()
if child == 0:
    try:
        run_doubling(prepared, rows)
    except HalError as error:
        os._exit("before this process was forked" not in str(error))
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
run_doubling(prepared, rows)
""",
}


@pytest.mark.parametrize("ending", _ENDINGS)
def test_the_interpreter_ends_well(opencl_device: Device, ending: str) -> None:
    prelude = """
from gpu_driver.device import pinned
from nn_runtime.hal.types import HalError
pinned.usable_processors = lambda: 4
device = discrete(device)
rows = pinned.LEAST_BYTES // ROW_BYTES
"""
    assert ended(start_python(prelude + _ENDINGS[ending], opencl_device)) == (0, "", "")

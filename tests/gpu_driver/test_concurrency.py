# SPDX-License-Identifier: Apache-2.0
"""Many threads on one device: right results, no more memory than the slots allow, order by priority, interruptions."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

from gpu_driver.device import context as context_module
from gpu_driver.device.context import MAX_EXECUTIONS
from gpu_driver.device.device_memory import DeviceBuffer
from gpu_driver.device.scheduler import Slot
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import BufferDesc, BufferRole, ErrorStatus, HalError, Priority
from tests.gpu_driver.graphs import request
from tests.gpu_driver.running import (
    MISSED,
    at_once,
    doubling,
    filled,
    fresh,
    memory_of,
    on_buffers,
    prepare,
    run,
    run_doubling,
    transposing,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_driver.driver import Device
    from gpu_driver.prepared_model import PreparedModel
    from nn_runtime.operand import Array

ROLE = [BufferRole(0, 0, 1.0)]


@pytest.fixture
def device(opencl_device: Device) -> Device:
    """The device under test, with a context of its own."""
    return fresh(opencl_device)


def test_64_executions_at_once_of_one_prepared_model(device: Device) -> None:
    rows = 64
    prepared = prepare(device, doubling(rows))
    constants = memory_of(device).allocated_bytes
    run_doubling(prepared, rows)
    context_bytes = memory_of(device).allocated_bytes - constants

    def work(seed: int) -> None:
        for at in range(4):
            run_doubling(prepared, rows, 100 * seed + at)

    assert at_once([lambda seed=seed: work(seed) for seed in range(64)]) == []  # type: ignore[misc]
    assert memory_of(device).peak_bytes <= constants + MAX_EXECUTIONS * context_bytes


def test_shapes_of_the_request_at_once(device: Device) -> None:
    """Threads lower the same segments at once, more than are kept."""
    prepared = prepare(device, transposing())

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for rows in generator.permutation(40)[:20] + 1:
            source = generator.standard_normal((rows, 3)).astype(np.float32)
            result = np.empty((3, rows), np.float32)
            run(prepared, request([source], [result]))
            assert np.array_equal(result, source.T)

    assert at_once([lambda seed=seed: work(seed) for seed in range(8)]) == []  # type: ignore[misc]
    assert len(prepared._graph.segments) <= 32


def test_models_interleaved_from_threads(device: Device) -> None:
    """Threads prepare, run and close models of their own and of others, at all priorities, timed and not."""
    shared = [(rows, prepare(device, doubling(rows), Priority(rows % 3))) for rows in range(1, 9)]

    def work(seed: int) -> None:
        generator = random.Random(seed)
        for at in range(20):
            rows = generator.randrange(1, 40)
            own = prepare(device, doubling(rows), generator.choice(list(Priority)))
            run_doubling(own, rows, at)
            some_rows, other = generator.choice(shared)
            run_doubling(other, some_rows, at)
            source, result = np.full((rows, 16), at, np.float32), np.empty((rows, 16), np.float32)
            timing = run(own, request([source], [result]), measure=True).timing
            assert 0 <= timing.time_on_device_ns <= timing.time_in_driver_ns
            assert np.array_equal(result, 2 * source)
            own.close()

    assert at_once([lambda seed=seed: work(seed) for seed in range(8)]) == []  # type: ignore[misc]


def test_one_request_from_many_threads(device: Device) -> None:
    prepared = prepare(device, doubling(32))
    source, result = np.arange(512, dtype=np.float32).reshape(32, 16), np.zeros((32, 16), np.float32)
    asked = request([source], [result])
    assert at_once([lambda: [run(prepared, asked) for _ in range(10)]] * 8) == []
    assert np.array_equal(result, 2 * source)


def test_memory_domains_from_many_threads(device: Device) -> None:
    prepared = prepare(device, doubling(4))

    def work(seed: int) -> None:
        first, first_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
        second, second_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
        data = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
        back = SharedMemory.create(256)
        for _ in range(10):
            first.copy_from(filled(data), ())
            run(prepared, on_buffers(first_token, second_token))
            second.copy_to(back)
            assert np.array_equal(back.array().view(np.float32), 2 * data)
        first.close()
        second.close()

    assert at_once([lambda seed=seed: work(seed) for seed in range(8)]) == []  # type: ignore[misc]


class WatchedEvent:
    """An event of a transfer that notes when it is waited for and when it goes."""

    def __init__(self, event: cl.Event, notes: list[str]) -> None:
        self._event = event
        self._notes = notes

    def wait(self) -> None:
        self._notes.append("waited")
        self._event.wait()

    def __del__(self) -> None:
        self._notes.append("gone")


def test_events_of_transfers_are_kept_until_all_is_done(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyOpenCL's event of a transfer waits when it goes, and blocks every Python thread meanwhile."""
    prepared = prepare(device, doubling(4))
    notes: list[str] = []

    def watched(
        transfer: Callable[[DeviceBuffer, cl.CommandQueue, Array], cl.Event],
    ) -> Callable[[DeviceBuffer, cl.CommandQueue, Array], WatchedEvent]:
        return lambda buffer, queue, data: WatchedEvent(transfer(buffer, queue, data), notes)

    monkeypatch.setattr(DeviceBuffer, "write", watched(DeviceBuffer.write))
    monkeypatch.setattr(DeviceBuffer, "read", watched(DeviceBuffer.read))
    run_doubling(prepared, 4)
    assert notes == ["waited", "gone", "gone"]


# Priorities and deadlines


def occupied(device: Device, slots: int) -> list[Callable[[], None]]:
    """Take execution slots of a device; return what gives each back."""
    taken = [device.context().executions.slot(Priority.HIGH) for _ in range(slots)]
    for slot in taken:
        slot.__enter__()
    return [partial(slot.__exit__, None, None, None) for slot in taken]


def test_waiting_executions_are_served_by_priority(device: Device) -> None:
    ended: list[str] = []
    models = {priority: prepare(device, doubling(4), priority) for priority in Priority}
    release, *others = occupied(device, MAX_EXECUTIONS)

    def work(name: str, prepared: PreparedModel) -> None:
        run_doubling(prepared, 4)
        ended.append(name)

    arrivals = [("a", Priority.LOW), ("b", Priority.MEDIUM), ("c", Priority.HIGH), ("d", Priority.LOW),
                ("e", Priority.MEDIUM), ("f", Priority.HIGH)]  # fmt: skip
    threads = [threading.Thread(target=work, args=(name, models[priority])) for name, priority in arrivals]
    for place, thread in enumerate(threads):
        thread.start()
        until(lambda place=place: device.context().executions.waiting == place + 1)  # type: ignore[misc]
    assert ended == []
    release()  # one slot: they run one after the other, each noting its end before the next is let in or just after
    for thread in threads:
        thread.join(60)
    for free in others:
        free()
    assert set(ended[:2]) <= {"c", "f", "b"}
    assert [name for name in ended if name in "cf"] == ["c", "f"]
    assert ended[-1] in "ad"


def test_a_deadline_passes_in_the_line(device: Device) -> None:
    prepared = prepare(device, doubling(4))
    releases = occupied(device, MAX_EXECUTIONS)
    asked = request([np.ones((4, 16), np.float32)], [np.empty((4, 16), np.float32)])
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(asked, False, time.monotonic_ns() + 5_000_000, None)
    assert caught.value.status in MISSED
    for free in releases:
        free()
    run_doubling(prepared, 4)


# Closing


def test_use_after_close_is_refused(device: Device) -> None:
    for model, source in ((doubling(2), np.ones((2, 16), np.float32)), (transposing(), np.ones((2, 3), np.float32))):
        prepared = prepare(device, model)
        burst = prepared.configure_execution_burst()
        asked = request([source], [np.empty(source.size, np.float32)])
        run(prepared, asked)
        prepared.close()
        prepared.close()
        for execute in (prepared.execute_synchronously, burst.execute):
            with pytest.raises(HalError, match="the prepared model is closed") as caught:
                execute(asked, False, None, None)
            assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
        with pytest.raises(HalError, match="the prepared model is closed"):
            prepared.execute_profiled(asked, None, None)


@pytest.mark.parametrize("turn", range(5))
def test_closing_while_others_run(device: Device, turn: int) -> None:
    """Whoever is inside gets a right result, whoever comes later an error; nothing is left."""
    prepared = prepare(device, doubling(64))
    running = threading.Event()

    def work(seed: int) -> None:
        try:
            for at in range(1000):
                run_doubling(prepared, 64, seed + at)
                running.set()
        except HalError as error:
            assert str(error) == "the prepared model is closed"
            return
        raise AssertionError("the model was never closed")

    def close() -> None:
        assert running.wait(60)
        time.sleep(0.002 * turn)
        prepared.close()

    assert at_once([close, *(lambda seed=seed: work(seed) for seed in range(4))]) == []
    assert prepared._idle == []
    assert memory_of(device).allocated_bytes == 0


def test_closing_a_memory_domain_while_it_is_used(device: Device) -> None:
    prepared = prepare(device, doubling(64))
    for _ in range(10):
        first, first_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
        second, second_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
        first.copy_from(filled(np.ones(1024, np.float32)), ())

        def work(first_token: int = first_token, second_token: int = second_token) -> None:
            try:
                for _ in range(1000):
                    run(prepared, on_buffers(first_token, second_token))
            except HalError as error:
                assert error.status == ErrorStatus.INVALID_ARGUMENT
                return
            raise AssertionError("the buffer was never closed")

        assert at_once([work, second.close]) == []
        first.close()
    run_doubling(prepared, 64)


# Interruptions


@pytest.mark.parametrize("name", ["enqueue_nd_range_kernel", "enqueue_copy"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [0, 1])
def test_an_interruption_leaves_the_model_usable(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str, after: bool, at: int
) -> None:
    """Interrupted before or after each command of a run, more often than there are slots."""
    prepared = prepare(device, doubling(8))
    whole = getattr(cl, name)
    for _ in range(MAX_EXECUTIONS + 1):
        calls = 0

        def interrupted(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls <= at:
                return whole(*arguments, **options)
            event = whole(*arguments, **options) if after else None
            if event is None or after:
                raise KeyboardInterrupt
            return event

        monkeypatch.setattr(cl, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_doubling(prepared, 8)
        monkeypatch.undo()
    run_doubling(prepared, 8, seed=1)
    assert len(prepared._idle) == 1


def test_an_interruption_while_waiting_leaves_the_model_usable(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(device, doubling(8))

    class Interrupted(WatchedEvent):
        def wait(self) -> None:
            raise KeyboardInterrupt

    whole = DeviceBuffer.read
    for _ in range(MAX_EXECUTIONS + 1):
        monkeypatch.setattr(
            DeviceBuffer, "read", lambda buffer, queue, data: Interrupted(whole(buffer, queue, data), [])
        )
        with pytest.raises(KeyboardInterrupt):
            run_doubling(prepared, 8)
        monkeypatch.undo()
    run_doubling(prepared, 8, seed=1)


def test_an_interrupted_run_leaves_its_output_buffers_empty(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(device, doubling(4))
    first, first_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
    second, second_token = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
    first.copy_from(filled(np.ones(64, np.float32)), ())
    run(prepared, on_buffers(first_token, second_token))

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(prepared, on_buffers(first_token, second_token))
    monkeypatch.undo()
    with pytest.raises(HalError):
        second.copy_to(SharedMemory.create(256))
    run(prepared, on_buffers(first_token, second_token))
    second.copy_to(SharedMemory.create(256))


@pytest.mark.parametrize("what", ["opening", "preparation", "transfer"])
def test_an_interruption_of_who_leaves_costs_no_slot(
    device: Device, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    prepared = prepare(device, doubling(4))
    buffer, _ = device.allocate(BufferDesc(), [prepared], ROLE, ROLE)
    works = {
        "opening": lambda: fresh(device).context(),
        "preparation": lambda: prepare(device, doubling(4)),
        "transfer": lambda: buffer.copy_from(filled(np.ones(64, np.float32)), ()),
    }
    leave, interrupts = Slot.__exit__, [KeyboardInterrupt()]

    def interrupted(slot: Slot, *failure: object) -> None:
        if interrupts:
            raise interrupts.pop()
        leave(slot, None, None, None)

    monkeypatch.setattr(Slot, "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        works[what]()
    monkeypatch.undo()
    context = device.context()
    users = [context_module._opening] if what == "opening" else [context.executions, context.preparations]
    for one in users:
        with one.alone(Priority.HIGH, time.monotonic_ns()):
            pass

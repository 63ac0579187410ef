# SPDX-License-Identifier: Apache-2.0
"""How fenced executions end: who waits for them, in whatever order, and what is left when nobody does."""

from __future__ import annotations

import _thread
import gc
import os
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.compilation import Compilation
from nn_runtime.errors import BadData, BadState, OperationFailed
from nn_runtime.event import Event, FenceEvent
from nn_runtime.execution import Execution
from nn_runtime.fenced_run import FencedRun
from nn_runtime.hal import fences
from nn_runtime.hal.fences import Fence
from nn_runtime.memory import Memory
from nn_runtime.outcome import FencedOutcome
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.fencing import bound, fenced_device, join_threads, relu
from tests.nn_runtime.graphs import chain_model, finished, numbers
from tests.nn_runtime.memories import memory_between, one_after_the_other
from tests.nn_runtime.test_partition import plan_of

if TYPE_CHECKING:
    from nn_runtime.device import Device

RELU, TANH = OperationCode.RELU, OperationCode.TANH


def test_it_counts_as_computing_until_its_event_was_waited_for() -> None:
    execution, _ = bound(relu([SampleDevice("at_once")]))
    execution.set_reusable(True)
    event = execution.start_compute_with_dependencies([])
    with pytest.raises(BadData, match="no sync fence"):
        event.sync_fence_fd()
    with pytest.raises(BadState, match="is computing"):
        execution.compute()
    event.wait()
    execution.compute()
    with execution.start_compute_with_dependencies([]):
        pass
    execution.compute()


def test_two_that_wait_at_once_finish_the_execution_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both_see_the_fence = threading.Barrier(2, timeout=10)

    def wait(_fence: int, _limit: float | None) -> fences.FenceStatus:
        both_see_the_fence.wait()
        return fences.FenceStatus.SIGNALLED

    finishes: list[bool] = []

    def finish(_run: FencedRun, succeeded: bool) -> None:
        finishes.append(succeeded)

    monkeypatch.setattr(fences, "wait", wait)
    gate = Fence()
    run = FencedRun(FencedOutcome((), gate.duplicate(), None), finish)
    event = FenceEvent(run.fence, run)
    waiting = [threading.Thread(target=event.wait) for _ in range(2)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert finishes == [True]
    event.close()
    gate.close()


def test_who_looks_does_not_wait_for_the_fence() -> None:
    gate = Fence()
    run = FencedRun(FencedOutcome((), gate.duplicate(), None), lambda _run, _succeeded: None)
    assert not run.see_end()
    gate.signal()
    assert run.see_end()
    gate.close()


def test_who_asks_waits_for_whoever_completes_the_execution_just_now() -> None:
    completing, go, seen = threading.Event(), threading.Event(), list[object]()
    error = OperationFailed("made up")

    def finish(_run: FencedRun, _succeeded: bool) -> OperationFailed:
        completing.set()
        go.wait(60)
        return error

    run = FencedRun(FencedOutcome((), None, None), finish)
    first = threading.Thread(target=run.end, args=(True,))
    first.start()
    assert completing.wait(60)
    assert not run.poll()
    others = [
        threading.Thread(target=lambda ask=ask: seen.append(ask())) for ask in (run.see_end, lambda: run.end(True))
    ]
    for other in others:
        other.start()
        other.join(0.05)
        assert other.is_alive()
    go.set()
    for thread in (first, *others):
        thread.join(60)
    assert len(seen) == 2
    assert True in seen
    assert error in seen


def test_where_no_thread_can_be_had_an_execution_ends_when_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    execution, output = bound(relu([fenced_device("dropped")]))
    execution.set_reusable(True)
    gate = Fence()
    event = execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
    with monkeypatch.context() as patched:
        patched.setattr(_thread, "start_new_thread", refuse)
        del event
        gc.collect()
    assert execution.is_computing
    gate.signal()
    join_threads()
    assert not execution.is_computing
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
    gate.close()


def test_an_execution_that_could_not_be_completed_has_failed_after_close_too() -> None:
    def finish(_run: FencedRun, _succeeded: bool) -> None:
        raise ValueError("made up")

    gate = Fence()
    run = FencedRun(FencedOutcome((), gate.duplicate(), None), finish)
    event = FenceEvent(run.fence, run)
    gate.signal()
    event.close()
    for _ in range(2):
        with pytest.raises(OperationFailed, match="ValueError: made up"):
            event.wait()
    gate.close()
    again = FencedRun(FencedOutcome((), None, None), finish)
    with pytest.raises(ValueError, match="made up"):
        again.end(True)
    assert isinstance(again.end(True), OperationFailed)  # for whoever asks next


@pytest.mark.parametrize("has_fence", [True, False])
def test_a_closed_event_keeps_nothing_of_its_execution(has_fence: bool) -> None:
    execution, output = bound(relu([fenced_device() if has_fence else SampleDevice("at_once")]))
    event = execution.start_compute_with_dependencies([])
    event.close()
    watched = weakref.ref(execution), weakref.ref(output)
    del execution, output
    join_threads()
    gc.collect()
    assert [one() for one in watched] == [None, None]
    event.wait()


@pytest.mark.parametrize("succeeds", [True, False])
def test_an_execution_whose_event_was_dropped_ends_with_its_fence(succeeds: bool) -> None:
    execution, output = bound(relu([fenced_device("dropped")]))
    execution.set_reusable(True)
    gate = Fence()
    execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
    gc.collect()
    assert execution.is_computing
    with pytest.raises(BadState, match="is computing"):
        execution.compute()
    execution.close()  # ignored
    gate.signal(succeeds)
    join_threads()
    if succeeds:
        assert execution.get_output_operand_dimensions(0) == (2, 3)
        np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
        output[:] = np.nan
    else:
        with pytest.raises(BadState, match="signalled an error"):
            execution.get_output_operand_dimensions(0)
    assert not execution.is_computing
    execution.compute()
    np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
    gate.close()


@pytest.mark.parametrize("closes", [True, False])
def test_a_compilation_closed_meanwhile_is_freed_when_that_shows(closes: bool) -> None:
    compilation = relu([fenced_device("dropped")])
    (step,) = plan_of(compilation).steps
    closings: list[object] = []
    step.prepared.close = lambda: closings.append(step)  # type: ignore[method-assign]
    execution, _ = bound(compilation)
    gate = Fence()
    execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)])
    gc.collect()
    compilation.close()
    assert closings == []
    gate.signal()
    join_threads()
    if closes:
        execution.close()
    assert not execution.is_computing
    assert closings == [step]
    gate.close()


def test_a_compilation_closed_after_a_fence_that_nobody_waited_for_is_freed_at_once() -> None:
    compilation = relu([fenced_device("dropped")])
    (step,) = plan_of(compilation).steps
    closings: list[object] = []
    step.prepared.close = lambda: closings.append(step)  # type: ignore[method-assign]
    execution, _ = bound(compilation)
    execution.start_compute_with_dependencies([])
    gc.collect()
    join_threads()
    compilation.close()
    assert closings == [step]
    assert not execution.is_computing


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_run_that_nobody_holds_keeps_its_compilation(succeeds: bool) -> None:
    compilation = relu([fenced_device("held")])
    (step,) = plan_of(compilation).steps
    closed = threading.Event()
    step.prepared.close = closed.set  # type: ignore[method-assign]
    gate, output = Fence(), np.zeros(0)

    def start() -> int:
        nonlocal output
        execution, output = bound(compilation)
        return execution.start_compute_with_dependencies([Event.from_sync_fence_fd(gate.fd)]).sync_fence_fd()

    fence = start()
    gc.collect()
    compilation.close()
    assert not closed.is_set()
    gate.signal(succeeds)
    assert fences.wait(fence, 60) == (fences.FenceStatus.SIGNALLED if succeeds else fences.FenceStatus.FAILED)
    assert closed.wait(60)
    if succeeds:
        np.testing.assert_array_equal(output, np.maximum(numbers(2, 3), 0))
    fences.close(fence)
    gate.close()


@pytest.mark.parametrize("is_kept", [True, False])
def test_device_memory_has_the_data_of_a_run_that_nobody_waited_for(device: Device, is_kept: bool) -> None:
    """A second run did, after the first one's fence; whether the event of that is still there or not."""
    compilation = Compilation(chain_model([RELU]), [device])
    compilation.finish()
    memory, output, kept = memory_between(compilation), np.zeros((2, 3), np.float32), []

    def run_twice() -> None:
        first, second = one_after_the_other(compilation, memory, output)
        event = first.start_compute_with_dependencies([])
        second.start_compute_with_dependencies([event]).wait()
        if is_kept:
            kept.append(event)

    for _ in range(20):
        run_twice()
        copied = Memory.from_array(np.zeros((2, 3), np.float32))
        Memory.copy(memory, copied)
        third = Execution(compilation)
        third.set_input_from_memory(0, memory)
        third.set_output(0, output)
        third.compute()
        for result in (output, copied.to_array(np.float32, (2, 3))):
            np.testing.assert_array_equal(result, np.maximum(numbers(2, 3), 0))
    for event in kept:
        event.wait()


def event_of_pipe() -> Event:
    """An event of a descriptor that the application made: a pipe with something in it."""
    read, write = os.pipe()
    os.write(write, b"x")
    os.close(write)
    event = Event.from_sync_fence_fd(read)
    os.close(read)
    return event


@needs_descriptors
def test_fences_leak_nothing() -> None:
    devices = [fenced_device("rest", {RELU}), fenced_device("tanh", {TANH})]
    compilation = finished(chain_model([RELU, TANH, RELU]), devices)
    execution, _ = bound(compilation)
    execution.set_reusable(True)

    def once() -> None:
        with event_of_pipe() as ready, execution.start_compute_with_dependencies([ready]) as event:
            event.wait()

    once()
    before = open_descriptors()
    for _ in range(20):
        once()
    join_threads()
    assert open_descriptors() <= before

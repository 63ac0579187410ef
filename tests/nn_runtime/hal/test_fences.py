# SPDX-License-Identifier: Apache-2.0
"""Sync fences: states, several holders, other kinds of descriptors, systems without eventfd."""

from __future__ import annotations

import _thread
import gc
import os
import select
import threading
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest

from nn_runtime.codes import OperandCode
from nn_runtime.errors import BadData, ResourceExhausted
from nn_runtime.hal import fences
from nn_runtime.hal.fences import Fence, FenceStatus
from nn_runtime.hal.plain import check_sizes_known, execute_after_fences, timing_since_launch, wait_for_fences
from nn_runtime.hal.types import DataLocation, ErrorStatus, HalError, Operand, Request, RequestArgument, Timing
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["eventfd", "sockets", "sockets and select"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What a system has: without poll, select."""
    if request.param == "eventfd" and not hasattr(os, "eventfd"):
        pytest.skip("no eventfd here")
    monkeypatch.setattr(fences, "HAS_EVENTFD", request.param == "eventfd")
    if "select" in request.param:
        monkeypatch.delattr(select, "poll", raising=False)
    yield request.param


@pytest.mark.parametrize("succeeded", [True, False])
def test_every_holder_sees_the_signal_as_often_as_it_looks(system: str, succeeded: bool) -> None:
    fence = Fence()
    holders = [fence.duplicate() for _ in range(2)]
    holders.append(fences.duplicate(holders[0]))
    assert [fences.wait(fd, 0) for fd in holders] == [FenceStatus.PENDING] * 3
    fence.signal(succeeded)
    fence.close()
    wanted = FenceStatus.SIGNALLED if succeeded else FenceStatus.FAILED
    for _ in range(2):
        assert [fences.wait(fd) for fd in holders] == [wanted] * 3
    for fd in holders:
        fences.close(fd)


def test_a_fence_of_sockets_whose_maker_has_died_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "HAS_EVENTFD", False)
    fence = Fence()
    holder = fence.duplicate()
    fence.close()
    assert fences.wait(holder) == FenceStatus.FAILED
    fences.close(holder)


def test_waiting_for_another_thread(system: str) -> None:
    fence = Fence()
    holder = fence.duplicate()
    threading.Timer(0.02, fence.signal).start()
    start = time.monotonic()
    assert fences.wait(holder, 5) == FenceStatus.SIGNALLED
    assert time.monotonic() - start < 4
    fences.close(holder)


def test_a_pipe_is_signalled_when_readable(system: str) -> None:
    read, write = os.pipe()
    assert fences.wait(read, 0) == FenceStatus.PENDING
    os.write(write, b"x")
    assert fences.wait(read) == FenceStatus.SIGNALLED
    os.close(read)
    os.close(write)


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="the system has no eventfd")
@pytest.mark.parametrize("succeeded", [True, False])
def test_a_fence_that_has_signalled_is_not_changed_by_its_makers_death(succeeded: bool) -> None:
    fence, pending = Fence(), Fence()
    fence.signal(succeeded)
    for one in (fence, pending):
        fences.fail(one.fd)
    assert fences.wait(fence.fd) == (FenceStatus.SIGNALLED if succeeded else FenceStatus.FAILED)
    assert fences.wait(pending.fd) == FenceStatus.FAILED


def test_a_fence_of_another_kind_is_left_alone_by_its_makers_death() -> None:
    read, write = os.pipe()
    for fd in (read, write):
        fences.fail(fd)
    assert fences.wait(read, 0) == FenceStatus.PENDING
    os.close(read)
    os.close(write)


def test_a_fence_is_no_child_processs(system: str) -> None:
    fence = Fence()
    other = fence.duplicate()
    assert not os.get_inheritable(fence.fd)
    assert not os.get_inheritable(other)
    fences.close(other)


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="the system has no eventfd")
def test_who_reads_a_fence_or_signals_it_twice_does_not_wait() -> None:
    fence = Fence()
    with pytest.raises(BlockingIOError):
        os.read(fence.fd, 8)
    fence.signal(False)
    with pytest.raises(BlockingIOError):
        fence.signal()
    assert fences.wait(fence.fd) == FenceStatus.FAILED


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="errors of others' descriptors are looked for beside eventfd")
def test_a_descriptor_in_an_error_state_has_failed() -> None:
    """One end of a pipe whose other end is closed: poll reports POLLERR."""
    reading, writing = os.pipe()
    os.close(reading)
    assert fences.wait(writing) == FenceStatus.FAILED
    os.close(writing)


def test_a_short_wait_is_not_cut_to_none(system: str) -> None:
    """The system counts milliseconds."""
    fence = Fence()
    start = time.perf_counter()
    assert fences.wait(fence.fd, 0.0009) == FenceStatus.PENDING
    assert time.perf_counter() - start >= 0.0009
    fence.signal()


def test_a_deadline_that_has_passed_leaves_no_time() -> None:
    """Less than none would be for ever to the system."""
    assert fences.seconds_until(time.monotonic_ns() - 10**9) == 0


def test_a_closed_descriptor_cannot_be_duplicated() -> None:
    with pytest.raises(BadData, match=r"sync fence: 1000000 is no open descriptor: .*Bad file descriptor"):
        fences.duplicate(10**6)


def test_waiting_for_several() -> None:
    good, bad = Fence(), Fence()
    good.signal()
    wait_for_fences([good.fd], None)
    with pytest.raises(HalError) as caught:
        wait_for_fences([good.fd, bad.fd], time.monotonic_ns() + 10**6)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    bad.signal(False)
    with pytest.raises(HalError, match="signalled an error"):
        wait_for_fences([good.fd, bad.fd], None)
    with pytest.raises(HalError) as caught:
        wait_for_fences([-1], None)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    good.close()
    bad.close()


@needs_descriptors
def test_an_execution_that_cannot_be_launched_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    good = Fence()
    before = open_descriptors()

    def launch(*wait_for: int) -> ErrorStatus:
        with pytest.raises(HalError) as caught:
            execute_after_fences("one", wait_for, None, None, lambda _deadline_ns: (Timing(), Timing()))
        return caught.value.status

    for _ in range(20):
        assert launch(good.fd, -1) == launch(good.fd, 10**6) == ErrorStatus.INVALID_ARGUMENT
    monkeypatch.setattr(_thread, "start_new_thread", _refuse)
    for _ in range(20):
        assert launch(good.fd) == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert open_descriptors() <= before
    good.close()


def test_what_became_of_an_execution_in_a_thread() -> None:
    gate, times = Fence(), (Timing(1, 3), Timing(1, 2))

    def fail(_deadline_ns: int | None) -> NoReturn:
        held = Held()
        watched.append(weakref.ref(held))
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "made up")

    def break_down(_deadline_ns: int | None) -> NoReturn:
        raise KeyError("foreign")

    watched: list[weakref.ref[Held]] = []
    started = [
        execute_after_fences("one", [gate.fd], None, None, execute) for execute in (lambda _: times, fail, break_down)
    ]
    for _, running in started:
        with pytest.raises(HalError, match="the fence has not signalled yet") as caught:
            running.get_execution_info()
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    gate.signal()
    ends = [fences.wait(fd, 60) for fd, _ in started]
    assert ends == [FenceStatus.SIGNALLED, FenceStatus.FAILED, FenceStatus.FAILED]
    assert started[0][1].get_execution_info() == times
    for (_, running), reason in zip(started[1:], ("made up", "KeyError: 'foreign'"), strict=True):
        with pytest.raises(HalError, match=reason):
            running.get_execution_info()
    gc.collect()
    assert watched[0]() is None  # though the error is kept
    for fd, _ in started:
        fences.close(fd)


class Held:
    """Something that a function has at hand."""


@pytest.mark.parametrize(
    ("since_fences", "ended_ns", "wanted"),
    [
        (Timing(5, 7), 200, Timing(5, 100)),
        (Timing(5, 7), 103, Timing(5, 7)),  # clocks are not alike
        (Timing(), 200, Timing()),
        (Timing(time_in_driver_ns=7), 200, Timing(time_in_driver_ns=100)),
    ],
)
def test_times_since_the_launch(since_fences: Timing, ended_ns: int, wanted: Timing) -> None:
    assert timing_since_launch(since_fences, 100, ended_ns) == wanted


def _refuse(*_arguments: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("model", "given", "reason"),
    [
        ((2, 3), (), ""),
        ((2, 0), (0, 3), ""),
        ((), (2, 3), ""),
        ((2, 0), (), "output 0: a fenced execution needs its size"),
        ((), (), "needs its size"),
        ((2, 0), (3, 3), "output 0: dimensions .* contradict"),
    ],
)
def test_sizes_of_a_fenced_execution(model: tuple[int, ...], given: tuple[int, ...], reason: str) -> None:
    outputs = [Operand(OperandCode.TENSOR_FLOAT32, model)]
    asked = Request((), (RequestArgument(location=DataLocation(), dimensions=given),))
    if not reason:
        check_sizes_known(outputs, asked)
        return
    if "size" in reason:
        check_sizes_known(outputs, Request((), (replace(asked.outputs[0], has_no_value=True),)))
    with pytest.raises(HalError, match=reason) as caught:
        check_sizes_known(outputs, asked)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_waiting_for_longer_than_systems_count(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Fence()
    holder = fence.duplicate()
    threading.Timer(0.02, fence.signal).start()
    assert fences.wait(holder, 2**62 / 1e9) == FenceStatus.SIGNALLED
    fences.close(holder)
    monkeypatch.setattr(fences, "_LONGEST_POLL_S", 0.01)
    late = Fence()
    holder = late.duplicate()
    start = time.monotonic()
    assert fences.wait(holder, 0.035) == FenceStatus.PENDING
    assert time.monotonic() - start >= 0.03
    threading.Timer(0.02, late.signal).start()
    assert fences.wait(holder, 5) == FenceStatus.SIGNALLED
    fences.close(holder)


@needs_descriptors
def test_without_descriptors_nothing_is_started_and_none_is_lost() -> None:
    resource = pytest.importorskip("resource")  # of Unix alone
    fence, before = Fence(), open_descriptors()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    filled: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], before + 64), limits[1]))
        with pytest.raises(ResourceExhausted, match=f"no descriptor for another of {fence.fd}: "):
            while True:
                filled.append(fence.duplicate())
        for free in (0, 1):  # for the fence that is waited for, then for one of its own
            for fd in filled[:free]:
                os.close(fd)
            del filled[:free]
            with pytest.raises(HalError) as caught:
                execute_after_fences("sample", [fence.fd], None, None, lambda _deadline: (Timing(), Timing()))
            assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in filled:
            os.close(fd)
    assert open_descriptors() == before
    fence.close()

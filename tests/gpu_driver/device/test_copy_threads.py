# SPDX-License-Identifier: Apache-2.0
"""Threads that share work: all of it is done once, failures and interrupts reach the caller, threads end."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, NoReturn

import pytest

from gpu_driver.device.copy_threads import CopyThreads
from tests.gpu_driver.running import at_once, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "nn_runtime opencl copies"


def running() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == NAME}


@pytest.fixture
def others() -> set[threading.Thread]:
    """Threads of other tests' devices."""
    return running()


class Meeting:
    """Work that is over when so many threads have come to it."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count)
        self.threads: set[int] = set()

    def work(self) -> None:
        self._barrier.wait(60)
        self.threads.add(threading.get_ident())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_so_many_threads_work_at_once(count: int) -> None:
    threads = CopyThreads(3)
    for _ in range(3):
        meeting = Meeting(count)
        threads.share(meeting.work, count)
        assert len(meeting.threads) == count
        assert threading.get_ident() in meeting.threads


def test_threads_are_started_when_they_are_called_and_end_with_the_object(others: set[threading.Thread]) -> None:
    threads = CopyThreads(3)
    threads.share(Meeting(1).work, 1)
    assert running() <= others
    threads.share(Meeting(3).work, 3)
    assert len(running() - others) == 2
    threads.end()
    until(lambda: running() <= others)
    threads.share(Meeting(4).work, 4)
    assert len(running() - others) == 3
    del threads
    until(lambda: running() <= others)


def test_no_more_threads_help_than_there_may_be(others: set[threading.Thread]) -> None:
    threads = CopyThreads(1)
    for _ in range(2):
        threads.share(Meeting(2).work, 4)
        assert len(running() - others) == 1
    alone = Meeting(1)
    CopyThreads(0).share(alone.work, 4)
    assert alone.threads == {threading.get_ident()}


@contextlib.contextmanager
def all_inside(threads: CopyThreads, count: int) -> Iterator[None]:
    """As many threads, one of them no copying one, are busy meanwhile."""
    done, meeting = threading.Event(), threading.Barrier(count + 1)

    def long() -> None:
        meeting.wait(60)
        assert done.wait(60)

    other = threading.Thread(target=threads.share, args=(long, count))
    other.start()
    meeting.wait(60)
    try:
        yield
    finally:
        done.set()
        other.join(60)


def test_no_more_threads_are_called_than_shall_help() -> None:
    threads = CopyThreads(3)
    with all_inside(threads, 4):  # who is called now stays in the line
        threads.share(Meeting(1).work, 2)
        in_line = threads._calls.qsize()
    assert in_line == 1


def test_nobody_waits_for_threads_that_are_busy() -> None:
    threads, alone = CopyThreads(1), Meeting(1)
    with all_inside(threads, 2):
        threads.share(alone.work, 2)
    assert alone.threads == {threading.get_ident()}


def test_many_share_a_few_threads() -> None:
    threads = CopyThreads(3)

    def share() -> None:
        for size in range(100):
            parts, taken = deque(range(size)), []

            def work(parts: deque[int] = parts, taken: list[int] = taken) -> None:
                while parts:
                    try:
                        taken.append(parts.popleft())
                    except IndexError:
                        return

            threads.share(work, 4)
            assert sorted(taken) == list(range(size))

    assert at_once([share] * 8) == []


def failing_in(caller: bool) -> Callable[[], None]:
    """Return work for two threads that fails in the caller, or in the other."""
    barrier, mine = threading.Barrier(2), threading.get_ident()

    def work() -> None:
        barrier.wait(60)
        if (threading.get_ident() == mine) == caller:
            raise ValueError("made up")

    return work


@pytest.mark.parametrize("caller", [True, False])
def test_what_fails_in_any_thread_is_raised(caller: bool) -> None:
    threads = CopyThreads(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="made up"):
            threads.share(failing_in(caller), 2)
    threads.share(Meeting(2).work, 2)


class MadeUpError(Exception):
    """One that can be waited for to be forgotten."""


def test_nobody_keeps_what_failed_in_another_thread() -> None:
    """Its traceback holds the arrays that were copied; they go with it, not when garbage is collected."""
    threads, mine, meeting = CopyThreads(1), threading.get_ident(), threading.Barrier(2)

    def work() -> None:
        meeting.wait(60)
        if threading.get_ident() != mine:
            raise MadeUpError

    gc.disable()
    try:
        try:
            threads.share(work, 2)
        except MadeUpError as error:
            seen = weakref.ref(error)
        until(lambda: seen() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("while_working", [True, False])
def test_an_interrupt_does_not_leave_threads_at_work(monkeypatch: pytest.MonkeyPatch, while_working: bool) -> None:
    """Neither while the caller works nor while it waits for the others."""
    threads, mine = CopyThreads(1), threading.get_ident()
    threads.share(Meeting(2).work, 2)  # the thread is there
    entered, ended, ends = threading.Event(), threading.Event(), threading.Event()
    wait = threading.Condition.wait
    interrupts = iter([1, 2])

    def work() -> None:
        if threading.get_ident() == mine:
            until(entered.is_set)
            if while_working:
                raise KeyboardInterrupt
            return
        entered.set()
        assert ends.wait(60)
        ended.set()

    def interrupted(condition: threading.Condition, timeout: float | None = None) -> bool:
        if threading.get_ident() == mine:
            if next(interrupts, None):
                raise KeyboardInterrupt
            ends.set()
        return wait(condition, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Condition, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            threads.share(work, 2)
    assert ended.is_set()


def test_the_caller_waits_until_the_last_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them goes when the caller begins to wait, the next when it waits again."""
    threads, mine = CopyThreads(2), threading.get_ident()
    threads.share(Meeting(3).work, 3)  # the threads are there
    ends, entered, left = [threading.Event(), threading.Event()], deque[threading.Event](), deque[threading.Event]()
    to_end, to_enter = iter(ends), iter(ends)
    wait = threading.Condition.wait

    def work() -> None:
        if threading.get_ident() == mine:
            until(lambda: len(entered) == 2)
            return
        end = next(to_enter)
        entered.append(end)
        assert end.wait(60)
        left.append(end)

    def waiting(condition: threading.Condition, timeout: float | None = None) -> bool:
        if threading.get_ident() == mine:
            next(to_end).set()
        return wait(condition, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Condition, "wait", waiting)
        threads.share(work, 3)
    have_left = list(left)
    for end in ends:
        end.set()
    assert have_left == ends


def test_the_caller_works_alone_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    threads = CopyThreads(3)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        alone = Meeting(1)
        threads.share(alone.work, 4)
    assert alone.threads == {threading.get_ident()}
    assert threads._calls.empty()  # nobody would take them
    threads.share(Meeting(4).work, 4)


def test_others_hold_nothing_of_the_work_when_it_is_over() -> None:
    threads, done = CopyThreads(1), threading.Event()
    first, alone = Meeting(2), Meeting(1)
    threads.share(first.work, 2)
    meeting = threading.Barrier(3)

    def long() -> None:
        meeting.wait(60)
        assert done.wait(60)

    other = threading.Thread(target=threads.share, args=(long, 2))
    other.start()
    meeting.wait(60)
    threads.share(alone.work, 2)  # the thread is called, and does not come
    seen = [weakref.ref(first), weakref.ref(alone)]
    del first, alone
    assert [one() for one in seen] == [None, None]
    done.set()
    other.join(60)

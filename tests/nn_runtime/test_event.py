# SPDX-License-Identifier: Apache-2.0
"""Events of descriptors that an application has (AOSP TestValidation fenced groups)."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from nn_runtime.errors import BadData, BadState, MissedDeadline, OperationFailed
from nn_runtime.event import Event
from nn_runtime.hal.fences import Fence
from nn_runtime.testing.sample_drivers import Recent, SampleDevice
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors
from tests.nn_runtime.fencing import bound, relu

if TYPE_CHECKING:
    from pathlib import Path


def test_bad_fence_descriptors() -> None:
    for fd in (-1, 0):
        with pytest.raises(BadData, match=f"must be > 0, got {fd}"):
            Event.from_sync_fence_fd(fd)
    with pytest.raises(BadData, match="no open descriptor"):
        Event.from_sync_fence_fd(10**6)


@pytest.mark.skipif(os.name == "nt", reason="a fence is a socket there, and a file's number none")
def test_a_file_is_no_fence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "file"):
        if path != tmp_path:
            path.touch()
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(BadData, match=f"sync fence: {fd} is a file, which never signals"):
            Event.from_sync_fence_fd(fd)
        os.close(fd)


def test_a_fence_of_ones_own() -> None:
    fence = Fence()
    with Event.from_sync_fence_fd(fence.fd) as event:
        with pytest.raises(MissedDeadline, match=r"the fence has not signalled within 0\.001 s"):
            event.wait(0.001)
        again = Event.from_sync_fence_fd(event.sync_fence_fd())
        fence.signal()
        event.wait()
        again.wait()
    fence.close()


def test_a_fence_that_fails() -> None:
    fence = Fence()
    event = Event.from_sync_fence_fd(fence.fd)
    fence.signal(False)
    for _ in range(2):
        with pytest.raises(OperationFailed, match="signalled an error"):
            event.wait()


def test_an_execution_that_has_not_ended() -> None:
    event, seen = Event(), list[str]()

    def end() -> None:
        seen.append("its end")
        event.signal(None)

    with pytest.raises(MissedDeadline, match=r"the execution has not ended within 0\.001 s"):
        event.wait(0.001)
    with pytest.raises(BadData, match="no sync fence"):
        event.sync_fence_fd()
    threading.Timer(0.02, end).start()
    event.close()
    assert seen == ["its end"]
    event.wait(0)


def test_each_wait_has_a_traceback_of_its_own() -> None:
    """One that grew would keep what every wait before had at hand."""
    event = Event()
    event.signal(OperationFailed("made up"))
    lengths = []
    for _ in range(3):
        with pytest.raises(OperationFailed, match="made up") as caught:
            event.wait()
        lengths.append(len(caught.traceback))
    assert len(set(lengths)) == 1


class Held:
    """Something that a function has at hand."""


def test_an_event_keeps_nothing_that_its_error_came_by() -> None:
    event, watched = Event(), []

    def fail() -> None:
        held = Held()
        watched.append(weakref.ref(held))
        raise OperationFailed("made up")

    with pytest.raises(OperationFailed) as caught:
        fail()
    event.signal(caught.value)
    gc.collect()
    assert watched[0]() is None
    with pytest.raises(OperationFailed, match="made up"):
        event.wait()


@needs_descriptors
def test_an_event_that_is_dropped_leaves_no_descriptor() -> None:
    fence = Fence()
    before = open_descriptors()
    events = [Event.from_sync_fence_fd(fence.fd) for _ in range(20)]
    assert open_descriptors() > before
    del events
    assert open_descriptors() <= before
    fence.close()


@pytest.mark.parametrize("call", ["wait", "close"])
def test_a_finalizer_does_not_wait_for_the_thread_that_runs_it(call: str) -> None:
    """The collection of garbage may run it within the execution."""

    class Owner:
        def __del__(self) -> None:
            try:
                getattr(event, call)()
                seen.append("done")
            except BadState as error:
                seen.append(str(error))

    class Collecting(Recent[Any]):
        def append(self, item: Any) -> None:
            is_garbage.wait(60)
            gc.collect()

    seen, is_garbage, device = list[str](), threading.Event(), SampleDevice("sample")
    device.record.requests = Collecting()
    execution, _ = bound(relu([device]))
    owner: Any = Owner()
    owner.itself = owner
    event = execution.start_compute()
    del owner
    is_garbage.set()
    event.wait(60)
    told = "done" if call == "close" else "event: the execution is this thread's own, and cannot end while it is"
    assert [line[: len(told)] for line in seen] == [told]

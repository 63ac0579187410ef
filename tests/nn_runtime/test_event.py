# SPDX-License-Identifier: Apache-2.0
"""Events of descriptors that an application has (AOSP TestValidation fenced groups)."""

from __future__ import annotations

import pytest

from nn_runtime.errors import BadData, MissedDeadline, OperationFailed
from nn_runtime.event import Event
from nn_runtime.hal.fences import Fence
from tests.nn_runtime.descriptors import needs_descriptors, open_descriptors


def test_bad_fence_descriptors() -> None:
    for fd in (-1, 0):
        with pytest.raises(BadData, match="must be > 0"):
            Event.from_sync_fence_fd(fd)
    with pytest.raises(BadData, match="no open descriptor"):
        Event.from_sync_fence_fd(10**6)


def test_a_fence_of_ones_own() -> None:
    fence = Fence()
    with Event.from_sync_fence_fd(fence.fd) as event:
        with pytest.raises(MissedDeadline):
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


@needs_descriptors
def test_an_event_that_is_dropped_leaves_no_descriptor() -> None:
    fence = Fence()
    before = open_descriptors()
    events = [Event.from_sync_fence_fd(fence.fd) for _ in range(20)]
    assert open_descriptors() > before
    del events
    assert open_descriptors() <= before
    fence.close()

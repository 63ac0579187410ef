# SPDX-License-Identifier: Apache-2.0
"""Idle memory is given back by all who hold some, whatever one of them does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gpu_driver.device.watchdog import Watchdog
from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    import pytest


class Holder:
    """Gives all its memory back; for some times it is used again while it does."""

    def __init__(self, watchdog: Watchdog, times: int) -> None:
        self.watchdog = watchdog
        self.times = times
        self.asked = 0

    def release_idle(self, before: float) -> bool:
        self.asked += 1
        if self.asked <= self.times:
            self.watchdog.watch(self)
        return False


def test_the_watchdog_keeps_an_eye_on_what_is_used_meanwhile() -> None:
    watchdog = Watchdog(1000.0)
    holder = Holder(watchdog, 2)
    watchdog.watch(holder)
    for asked in (1, 2, 3, 3):
        watchdog.release_all()
        assert holder.asked == asked


class Unwilling:
    """Memory that cannot be given back."""

    def release_idle(self, before: float) -> bool:
        raise HalError(ErrorStatus.GENERAL_FAILURE, "made up")


def test_one_whose_memory_cannot_be_given_back_keeps_no_other_from_it() -> None:
    watchdog = Watchdog(1000.0)
    unwilling = [Unwilling() for _ in range(4)]
    willing = [Holder(Watchdog(1000.0), 0) for _ in range(4)]
    for first, second in zip(unwilling, willing, strict=True):
        watchdog.watch(first)
        watchdog.watch(second)
    watchdog.release_all()
    assert [holder.asked for holder in willing] == [1] * 4


class Idle:
    """Memory that tells when it is given back."""

    def __init__(self) -> None:
        self.is_released = threading.Event()

    def release_idle(self, before: float) -> bool:
        self.is_released.set()
        return False


def test_where_there_is_no_thread_memory_waits_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    watchdog, first, second = Watchdog(0.01), Idle(), Idle()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        watchdog.watch(first)
    assert not first.is_released.is_set()
    watchdog.watch(second)
    assert first.is_released.wait(60)
    assert second.is_released.wait(60)

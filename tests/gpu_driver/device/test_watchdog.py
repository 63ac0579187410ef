# SPDX-License-Identifier: Apache-2.0
"""Idle memory is given back by all who hold some, whatever one of them does."""

from __future__ import annotations

from gpu_driver.device.watchdog import Watchdog
from nn_runtime.hal.types import ErrorStatus, HalError


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

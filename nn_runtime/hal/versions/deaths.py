# SPDX-License-Identifier: Apache-2.0
"""Asynchronous calls of a driver whose service may die meanwhile: whoever waits for a callback is woken."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from nn_runtime.hal.types import HalError
from nn_runtime.hal.versions.callbacks import checked, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nn_runtime.hal.versions.callbacks import OnceCallback

T = TypeVar("T")


@runtime_checkable
class LinksToDeath(Protocol):
    """Optional: a driver's proxy that tells when the service behind it dies."""

    def link_to_death(self, recipient: Callable[[], None]) -> None:
        """Call `recipient` once the service has died."""

    def unlink_to_death(self, recipient: Callable[[], None]) -> None:
        """Forget a recipient."""


class HearsOfDeath(Protocol):
    """Someone who waits for an answer of the service."""

    def notify_as_dead(self) -> None:
        """Wake up: the service died."""


class Deaths:
    """Wakes the callbacks that are awaited when the service behind a driver dies."""

    def __init__(self, driver: object) -> None:
        """`driver`: linked to if it tells of its death."""
        self._lock = threading.Lock()
        self._waiting: list[HearsOfDeath] = []
        self._died = False
        self.link(driver)

    def link(self, driver: object) -> None:
        """Hear of the death of one more object of the driver, where it can tell; raises HalError."""
        if isinstance(driver, LinksToDeath):
            guarded(lambda: driver.link_to_death(self._notify), "link_to_death")

    def unlink(self, driver: object) -> None:
        """Hear of the death of an object no more."""
        if isinstance(driver, LinksToDeath):
            driver.unlink_to_death(self._notify)

    @contextlib.contextmanager
    def awaiting(self, callback: HearsOfDeath) -> Iterator[None]:
        """Wake those who wait for a callback if the service dies inside the block, or has died before."""
        with self._lock:
            self._waiting.append(callback)
            if self._died:
                callback.notify_as_dead()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.remove(callback)

    def _notify(self) -> None:
        with self._lock:
            self._died = True
            for callback in self._waiting:
                callback.notify_as_dead()


def launched(deaths: Deaths, callback: OnceCallback[T], launch: Callable[[], int], what: str) -> None:
    """Launch an asynchronous call and wait for its callback; raises the HalError of the launch.

    A launch that fails counts even if the callback is never notified.
    """
    with deaths.awaiting(callback):
        checked(guarded(launch, what), f"launching {what}")
        with contextlib.suppress(HalError):
            callback.wait()

# SPDX-License-Identifier: Apache-2.0
"""Memory that is given back when nobody has used it for a while, or when somebody needs it."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from contextlib import suppress
from typing import Protocol

_log = logging.getLogger(__name__)


class Releases(Protocol):
    """Something whose device memory may be given back while it is idle."""

    def release_idle(self, before: float) -> bool:
        """Give memory back that was last used before `before` (time.monotonic seconds); return whether any is left."""


class Watchdog:
    """One daemon thread, alive only while somebody holds memory that may be given back for being idle so long.

    With infinite seconds there is no thread: memory is given back by `release_all` alone.
    """

    def __init__(self, idle_seconds: float) -> None:
        """Start nothing yet."""
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._holders: weakref.WeakSet[Releases] = weakref.WeakSet()
        self._running = False

    def watch(self, holder: Releases) -> None:
        """Add a holder, and start the thread if it is not running; where that fails, with the next holder."""
        with self._lock:
            self._holders.add(holder)
            if not self._running and math.isfinite(self._idle_seconds):
                thread = threading.Thread(target=self._run, name="nn_runtime opencl watchdog", daemon=True)
                with suppress(RuntimeError):  # there is no room for one more, or the interpreter is ending
                    thread.start()
                    self._running = True

    def release_all(self) -> None:
        """Have all idle memory given back now."""
        self._release(time.monotonic())

    def _run(self) -> None:
        while True:
            time.sleep(self._idle_seconds / 4)
            self._release(time.monotonic() - self._idle_seconds)
            with self._lock:
                if not self._holders:
                    self._running = False
                    return

    def _release(self, before: float) -> None:
        with self._lock:
            holders = list(self._holders)
            self._holders.clear()  # one that is added from now on stays, whatever it answers
        for holder in holders:
            try:
                has_more = holder.release_idle(before)
            except Exception:
                _log.exception("idle memory of %s is not given back", holder)
                continue
            if has_more:
                with self._lock:
                    self._holders.add(holder)

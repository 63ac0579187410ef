# SPDX-License-Identifier: Apache-2.0
"""Completion of an asynchronous execution."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from nn_runtime.errors import BadData, MissedDeadline

if TYPE_CHECKING:
    from nn_runtime.errors import NNError


class Event:
    """Signalled when an execution has ended; holds its error."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: NNError | None = None

    def signal(self, error: NNError | None) -> None:
        """Say that the execution has ended, with its error if it failed."""
        self._error = error
        self._done.set()

    def wait(self, timeout: float | None = None) -> None:
        """Return when the execution has ended; raises its error, or MissedDeadline after `timeout` seconds."""
        if not self._done.wait(timeout):
            raise MissedDeadline(f"event: the execution has not ended within {timeout} s")
        if self._error is not None:
            raise self._error

    def sync_fence_fd(self) -> int:
        """Return a sync fence; raises BadData, since the event of a plain asynchronous execution has none."""
        raise BadData("event: it has no sync fence")

    def close(self) -> None:
        """Wait for the end, whatever it is."""
        self._done.wait()

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

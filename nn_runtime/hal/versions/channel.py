# SPDX-License-Identifier: Apache-2.0
"""The channels of a burst of HAL 1.2: queues of fixed-size records (SURFACE section i)."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANNEL_LENGTH = 1024
"""Records that a channel holds, unless told otherwise."""


class Channel:
    """A queue of records between two threads; holds at most `length` of them."""

    def __init__(self, length: int = CHANNEL_LENGTH) -> None:
        """Start empty."""
        self.length = length
        self._records: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def write(self, packet: Sequence[bytes]) -> bool:
        """Append a packet whole; False where it does not fit, or the channel is closed."""
        with self._changed:
            if self._closed or len(self._records) + len(packet) > self.length:
                return False
            self._records.extend(packet)
            self._changed.notify_all()
            return True

    def read(self) -> list[bytes] | None:
        """Wait for records and return all that are there; None when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._records or self._closed)
            if self._closed:
                return None
            packet = list(self._records)
            self._records.clear()
            return packet

    def close(self) -> None:
        """Wake the readers; nothing goes through any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

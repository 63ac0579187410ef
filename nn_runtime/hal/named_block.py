# SPDX-License-Identifier: Apache-2.0
"""Blocks of shared memory with a name, for systems without files in memory; imported only where one is needed."""

from __future__ import annotations

import os
import sys
from multiprocessing import resource_tracker, shared_memory


class NamedBlock(shared_memory.SharedMemory):
    """A block that may be closed while arrays still show it: it is unmapped when a later one is made."""

    @classmethod
    def create(cls, size_bytes: int) -> NamedBlock:
        """Return a new zeroed block; raises OSError."""
        _close_lingering()
        return cls(create=True, size=size_bytes)

    @classmethod
    def attach(cls, name: str) -> NamedBlock:
        """Return a block of another process, which alone will unlink it; raises OSError."""
        _close_lingering()
        if sys.version_info >= (3, 13):
            return cls(name, track=False)
        block = cls(name)
        if os.name == "posix":
            resource_tracker.unregister(f"/{block.name}", "shared_memory")
        return block

    def close(self) -> None:
        """Unmap now, or later."""
        try:
            super().close()
        except BufferError:
            _lingering.append(self)


_lingering: list[NamedBlock] = []


def _close_lingering() -> None:
    waiting = _lingering.copy()
    _lingering.clear()
    for block in waiting:
        block.close()

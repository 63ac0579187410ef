# SPDX-License-Identifier: Apache-2.0
"""Commands that were enqueued, with their events, for a profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyopencl as cl

    from gpu_driver.launch import Command, Launch
    from nn_runtime.operand import Array


@dataclass(frozen=True)
class Transfer:
    """What a host transfer was, for a profile."""

    name: str
    size_bytes: int


@dataclass(frozen=True, eq=False)
class Clocked:
    """A launch that told the times of its tasks; `data`: its progress memory, there once the next command is done.

    Where the host sees that memory it is `source`, to be copied to `data` once the launch is done, before another.
    """

    launch: Launch
    data: Array
    source: Array | None = None

    def take(self) -> None:
        """Copy what the host sees."""
        if self.source is not None:
            self.data[:] = self.source


Recorded: TypeAlias = "tuple[Command | Transfer | Clocked, cl.Event]"

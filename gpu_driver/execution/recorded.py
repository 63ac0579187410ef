# SPDX-License-Identifier: Apache-2.0
"""Commands that were enqueued, with their events, for a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyopencl as cl

    from gpu_driver.launch import Command, Launch, Stage
    from nn_runtime.operand import Array


@dataclass(frozen=True)
class Transfer:
    """What a host transfer was, for a profile. array: what those of an array's parts have in common."""

    name: str
    size_bytes: int
    array: object = None


@dataclass(eq=False)
class Clocked:
    """A launch that told the times of its tasks: `stamps` as `Clock.stamps`, there once the next command is done.

    Where they `are_shared` they lie in memory that the next launch writes, and are to be taken before that.
    """

    launch: Launch
    stamps: Array
    are_shared: bool = False


@dataclass(frozen=True)
class Referred:
    """A command of a graph that IF or WHILE refers to: it is these operations' of the model around it."""

    operations: tuple[int, ...]
    command: Command | Stage | Transfer | Clocked | Referred


Recorded: TypeAlias = "tuple[Command | Stage | Transfer | Clocked | Referred, cl.Event]"


def take_stamps(recorded: Iterable[Recorded]) -> None:
    """Copy the times that launches left where the next ones will."""
    for command, _ in recorded:
        while isinstance(command, Referred):
            command = command.command
        if isinstance(command, Clocked) and command.are_shared:
            command.stamps, command.are_shared = command.stamps.copy(), False

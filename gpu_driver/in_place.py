# SPDX-License-Identifier: Apache-2.0
"""Outputs that take over the memory of an input: of launches that allow it, where nobody reads that input again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.bound import BoundOperand
from gpu_driver.launch import Launch, memories_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpu_driver.launch import Command, Steps


def shared_in_place(
    commands: Sequence[Command | Steps], storage: Mapping[int, int], boundary: Collection[int]
) -> dict[int, int]:
    """Return the operand whose memory an operand uses, where it is another.

    storage: the same for aliases; boundary: operands whose memory is not the segment's own.
    """
    last = {
        storage.get(one.index, one.index): at
        for at, command in enumerate(commands)
        for one in memories_of(command)
        if isinstance(one, BoundOperand)
    }
    taken: dict[int, int] = {}
    for at, command in enumerate(commands):
        if not isinstance(command, Launch) or not command.in_place:
            continue
        source, output = command.arguments[:2]
        if not isinstance(source, BoundOperand) or not isinstance(output, BoundOperand) or source.is_constant:
            continue
        before, after = (storage.get(one.index, one.index) for one in (source, output))
        before = taken.get(before, before)
        if {before, after} & {*boundary} or last[before] != at:
            continue
        taken[after] = before
        last[before] = last[after]
    roots = {*storage, *taken}
    return {index: taken.get(storage.get(index, index), storage.get(index, index)) for index in roots}

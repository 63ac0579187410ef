# SPDX-License-Identifier: Apache-2.0
"""The order of commands: those that one chain can do stand together, where what they read and write lets them."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeAlias

from gpu_driver.kernel import Scratch
from gpu_driver.launch import Launch, Steps, memories_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from gpu_driver.chain.step import Memory
    from gpu_driver.launch import Command

    _Kind: TypeAlias = Hashable | None
    """The kernel whose chains can do a command; None if none can."""


def gathered(
    commands: Sequence[Command | Steps], key: Callable[[Memory], int], unchanged: Collection[int]
) -> list[Command | Steps]:
    """Return commands in an order in which fewer chains do them; as they are where there is none.

    key: the same for memories that are the same; unchanged: keys of memories that no command writes.
    """
    kinds = [_kind(command) for command in commands]
    runs = _count_of_runs(kinds)
    if runs == len(set(kinds) - {None}):
        return list(commands)
    order = _by_kind(kinds, _needed_before(commands, key, unchanged))
    return [commands[at] for at in order] if _count_of_runs([kinds[at] for at in order]) < runs else list(commands)


def _kind(command: Command | Steps) -> _Kind:
    steps = command.steps if isinstance(command, Launch | Steps) else ()
    return steps[0].kernel if steps else None


def _count_of_runs(kinds: Sequence[_Kind]) -> int:
    """Return how many times commands of a chain follow others."""
    return sum(kind is not None and (at == 0 or kinds[at - 1] != kind) for at, kind in enumerate(kinds))


def _by_kind(kinds: Sequence[_Kind], needed: Sequence[set[int]]) -> list[int]:
    """Return an order in which every command comes after those needed: all that are ready of one kind, then others.

    What no chain can do comes first, as chains may need it.
    """
    missing = [len(before) for before in needed]
    following: list[list[int]] = [[] for _ in kinds]
    for at, before in enumerate(needed):
        for one in before:
            following[one].append(at)
    ready: dict[_Kind, list[int]] = {kind: [] for kind in (None, *kinds)}
    for at, count in enumerate(missing):
        if not count:
            ready[kinds[at]].append(at)
    order: list[int] = []
    while len(order) < len(kinds):
        waiting = ready[
            min((kind for kind in ready if ready[kind]), key=lambda kind: (kind is not None, ready[kind][0]))
        ]
        while waiting:
            at = heapq.heappop(waiting)
            order.append(at)
            for other in following[at]:
                missing[other] -= 1
                if not missing[other]:
                    heapq.heappush(ready[kinds[other]], other)
    return order


def _needed_before(
    commands: Sequence[Command | Steps], key: Callable[[Memory], int], unchanged: Collection[int]
) -> list[set[int]]:
    """Return for every command those before it that write what it uses, or use what it writes."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    needed: list[set[int]] = []
    for at, command in enumerate(commands):
        read, written = (keys.difference(unchanged) for keys in _accesses(command, key))
        before = {writer[one] for one in read | written if one in writer}
        before |= {reader for one in written for reader in readers.pop(one, ())}
        for one in read:
            readers.setdefault(one, []).append(at)
        for one in written:
            writer[one] = at
        needed.append(before - {at})
    return needed


def _accesses(command: Command | Steps, key: Callable[[Memory], int]) -> tuple[set[int], set[int]]:
    """Return what a command reads, and what it writes: of a launch that is no step, all that it names."""
    steps = command.steps if isinstance(command, Launch | Steps) else ()
    if steps:
        return {key(one) for step in steps for one in step.memories}, {key(step.output) for step in steps}
    return set(), {key(one) for one in memories_of(command) if isinstance(one, Scratch) or not one.is_constant}

# SPDX-License-Identifier: Apache-2.0
"""The memories of a chain: which of them are the same, and where they lie."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpu_driver.device.buffers import Lifetime, plan_arenas
from gpu_driver.kernel import Scratch
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_driver.chain.step import Memory, Step

BUFFERS = 16
"""Buffers of a chain; the first is its own memory for what stays inside."""
ALIGNMENT = 64
"""Bytes, of constants and of tensors in a chain's own memory."""
SMALL_BYTES, STEPS_APART = 8 << 10, 4
"""A small memory is kept so many steps longer: all cores read it, and who wrote over it would wait for the last."""


@dataclass(frozen=True)
class Memories:
    """Which memories of steps are the same, and which nobody else uses.

    keys: equal for memories that are the same; inner: keys of those that only the steps use.
    """

    keys: Mapping[Memory, int]
    inner: frozenset[int]

    @property
    def outer_count(self) -> int:
        """How many different ones others use, too."""
        return len(set(self.keys.values()) - self.inner)

    def key(self, memory: Memory) -> int:
        """Return what stands for a memory."""
        return self.keys[memory]

    def are_same(self, first: Memory, second: Memory) -> bool:
        """Whether two are the same memory."""
        return self.keys[first] == self.keys[second]

    def is_inner(self, memory: Memory) -> bool:
        """Whether nobody but the steps uses a memory."""
        return self.keys[memory] in self.inner

    def used_by(self, steps: Iterable[Step]) -> Counter[int]:
        """Return how often some of the steps use each memory."""
        return Counter(self.keys[memory] for step in steps for memory in step.memories)

    def only_within(self, steps: Iterable[Step], others: Iterable[Step]) -> Memories:
        """Return the memories of some steps; inner ones are those that the others do not use."""
        shared = self.used_by(others).keys()
        return Memories({one: self.keys[one] for step in steps for one in step.memories}, self.inner - shared)


class Placement:
    """Where the memories of a chain's steps lie: in its own memory by lifetime, or in a buffer of their own."""

    def __init__(self, steps: Sequence[Step], memories: Memories) -> None:
        self._memories = memories
        self._uses: dict[int, list[int]] = {}
        sizes: dict[int, int] = {}
        outer: dict[int, Memory] = {}
        for at, step in enumerate(steps):
            for memory in step.memories:
                key = memories.key(memory)
                if not memories.is_inner(memory):
                    outer.setdefault(key, memory)
                    continue
                uses = self._uses.setdefault(key, [])
                if not uses or uses[-1] != at:
                    uses.append(at)
                sizes[key] = max(sizes.get(key, 1), memory.size_bytes)
        self._by_last_use = sorted(self._uses.items(), key=lambda one: -one[1][-1])
        lifetimes = [
            Lifetime(sizes[key], uses[0], uses[-1] + (STEPS_APART if sizes[key] <= SMALL_BYTES else 0))
            for key, uses in self._uses.items()
        ]
        plan = plan_arenas(lifetimes, ALIGNMENT, 1 << 62)
        self._spans = {
            key: (place.offset, place.offset + sizes[key]) for key, place in zip(self._uses, plan.places, strict=True)
        }
        self._slots = {key: slot for slot, key in enumerate(outer, 1)}
        own = Scratch(plan.sizes_bytes[0]) if plan.sizes_bytes else next(iter(outer.values()))
        self.buffers: tuple[Memory, ...] = (own, *outer.values(), *[own] * (BUFFERS - 1 - len(outer)))

    def place(self, memory: Memory) -> tuple[int, int]:
        """Return the number of the buffer, and the offset in units of ALIGNMENT."""
        key = self._memories.key(memory)
        return (0, self._spans[key][0] // ALIGNMENT) if key in self._spans else (self._slots[key], 0)

    def same(self, first: Memory, second: Memory) -> bool:
        """Whether two are the same memory."""
        return self._memories.are_same(first, second)

    def overwritten(self, memory: Memory, at: int) -> list[tuple[int, int, list[int]]]:
        """Return other memories that lay last where this one does, none of them needed from step `at` on.

        Of each its key, how many bytes behind the begin of this one it begins, and the steps that use it.
        """
        key = self._memories.key(memory)
        if key not in self._spans:
            return []
        begin, _ = self._spans[key]
        found: list[tuple[int, int, list[int]]] = []
        free = [self._spans[key]]
        for other, uses in self._by_last_use:
            first, last = self._spans[other]
            if uses[-1] >= at or other == key or not any(first < end and start < last for start, end in free):
                continue
            found.append((other, first - begin, uses))
            parts = (part for start, end in free for part in ((start, min(first, end)), (max(last, start), end)))
            free = [(start, end) for start, end in parts if start < end]
            if not free:
                break
        return found

    def has_key(self, memory: Memory, key: int) -> bool:
        """Whether it is the memory of a key."""
        return self._memories.key(memory) == key

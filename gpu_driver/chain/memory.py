# SPDX-License-Identifier: Apache-2.0
"""Where the memories of a chain lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.device.buffers import Lifetime, plan_arenas
from gpu_driver.launch import Scratch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_driver.chain.step import Memory, Step
    from gpu_driver.chain.tasks import Span

BUFFERS = 8
"""Buffers of a chain; the first is its own memory for what stays inside."""
ALIGNMENT = 64
"""Bytes, of constants and of tensors in a chain's own memory."""


class Placement:
    """Where the memories of a chain's steps lie: in its own memory by lifetime, or in a buffer of their own."""

    def __init__(self, steps: Sequence[Step], keys: Mapping[Memory, int], inner: frozenset[int]) -> None:
        self._keys = keys
        self._uses: dict[int, list[int]] = {}
        sizes: dict[int, int] = {}
        outer: dict[int, Memory] = {}
        for at, step in enumerate(steps):
            for memory in step.memories:
                key = keys[memory]
                if key not in inner:
                    outer.setdefault(key, memory)
                    continue
                self._uses.setdefault(key, []).append(at)
                sizes[key] = max(sizes.get(key, 1), memory.size_bytes)
        lifetimes = [Lifetime(sizes[key], uses[0], uses[-1]) for key, uses in self._uses.items()]
        plan = plan_arenas(lifetimes, ALIGNMENT, 1 << 62)
        self._spans = {
            key: (place.offset, place.offset + sizes[key]) for key, place in zip(self._uses, plan.places, strict=True)
        }
        self._slots = {key: slot for slot, key in enumerate(outer, 1)}
        own = Scratch(plan.sizes_bytes[0]) if plan.sizes_bytes else next(iter(outer.values()))
        self.buffers: tuple[Memory, ...] = (own, *outer.values(), *[own] * (BUFFERS - 1 - len(outer)))

    def place(self, memory: Memory) -> tuple[int, int]:
        """Return the number of the buffer, and the offset in units of ALIGNMENT."""
        key = self._keys[memory]
        return (0, self._spans[key][0] // ALIGNMENT) if key in self._spans else (self._slots[key], 0)

    def same(self, first: Memory, second: Memory) -> bool:
        """Whether two are the same memory."""
        return self._keys[first] == self._keys[second]

    def users_before(self, memory: Memory, at: int) -> Span | None:
        """Return the steps before `at` that used the place of memory which step `at` writes first, for other memory."""
        key = self._keys[memory]
        if key not in self._spans:
            return None
        begin, end = self._spans[key]
        others = [
            uses
            for other, uses in self._uses.items()
            if other != key and uses[-1] < at and self._spans[other][0] < end and begin < self._spans[other][1]
        ]
        return (min(uses[0] for uses in others), max(uses[-1] for uses in others) + 1) if others else None

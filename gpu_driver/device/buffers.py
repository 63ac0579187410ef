# SPDX-License-Identifier: Apache-2.0
"""Where temporaries lie in an arena: offsets by lifetime, so that memory is used again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALIASING_BYTES, _APART_BYTES = 4096, 1088
"""Loads wait for stores whose addresses are alike modulo the first; what lies apart by the second does not."""


@dataclass(frozen=True)
class Lifetime:
    """A temporary: its size and the first and last command that touch it (both included)."""

    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Place:
    """Where a temporary lies: which arena, and the offset in bytes."""

    arena: int
    offset: int


@dataclass(frozen=True)
class ArenaPlan:
    """The place of each temporary, in the order given, and the sizes of the arenas: one, unless too large."""

    places: tuple[Place, ...]
    sizes_bytes: tuple[int, ...]


def plan_arenas(temporaries: Sequence[Lifetime], alignment: int, limit_bytes: int) -> ArenaPlan:
    """Place temporaries so that those alive at once do not overlap; larger ones first, each at its lowest gap.

    What follows temporaries of whole pages begins elsewhere in a page than they do. No arena is larger than
    `limit_bytes`, unless a single temporary is.
    Source: greedy by size, Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020.
    """
    order = sorted(range(len(temporaries)), key=lambda i: (-temporaries[i].size_bytes, temporaries[i].first))
    places: dict[int, Place] = {}
    sizes: list[int] = []
    for i in order:
        one = temporaries[i]
        rivals = [
            (place, _kept_bytes(temporaries[j].size_bytes))
            for j, place in places.items()
            if temporaries[j].first <= one.last and one.first <= temporaries[j].last
        ]
        places[i] = _first_place(rivals, one.size_bytes, alignment, limit_bytes, len(sizes))
        end = places[i].offset + one.size_bytes
        if places[i].arena == len(sizes):
            sizes.append(end)
        else:
            sizes[places[i].arena] = max(sizes[places[i].arena], end)
    return ArenaPlan(tuple(places[i] for i in range(len(temporaries))), tuple(sizes))


def _kept_bytes(size_bytes: int) -> int:
    return size_bytes + (_APART_BYTES if size_bytes % _ALIASING_BYTES == 0 else 0)


def readable_bytes(count: int) -> str:
    """Return a number of bytes for people: `3.1 GiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _first_place(
    rivals: Sequence[tuple[Place, int]], size_bytes: int, alignment: int, limit_bytes: int, arenas: int
) -> Place:
    for arena in range(arenas):
        taken = sorted((place.offset, size) for place, size in rivals if place.arena == arena)
        offset = _lowest_gap(taken, size_bytes, alignment)
        if offset + size_bytes <= limit_bytes:
            return Place(arena, offset)
    return Place(arenas, 0)


def _lowest_gap(rivals: Sequence[tuple[int, int]], size_bytes: int, alignment: int) -> int:
    offset = 0
    for start, length in rivals:
        if offset + size_bytes <= start:
            break
        offset = max(offset, -(-(start + length) // alignment) * alignment)
    return offset

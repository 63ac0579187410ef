# SPDX-License-Identifier: Apache-2.0
"""Where temporaries lie: at offsets of an arena by lifetime, or each in a whole buffer; memory is used again."""

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
    """The place of each temporary, in the order given, and the sizes of the arenas: one, unless too large.

    are_whole: every temporary has an arena from its start, so that none has to be cut out of it.
    """

    places: tuple[Place, ...]
    sizes_bytes: tuple[int, ...]
    are_whole: bool = False


def plan_arenas(temporaries: Sequence[Lifetime], alignment: int, limit_bytes: int) -> ArenaPlan:
    """Place temporaries so that those alive at once do not overlap; larger ones first, each at its lowest gap.

    What follows temporaries of whole pages begins elsewhere in a page than they do. No arena is larger than
    `limit_bytes`, unless a single temporary is.
    Source: greedy by size, Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020.
    """
    order = sorted(range(len(temporaries)), key=lambda i: -temporaries[i].size_bytes)
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


def plan_whole_buffers(temporaries: Sequence[Lifetime]) -> ArenaPlan:
    """Give each temporary a buffer that has no other while it lives: larger ones first, each the smallest there is.

    For devices where parts of a buffer that overlap cost time: NVIDIA's driver copies to keep them alike, 20 to 140 us
    a launch, and crashes when they are given back (580.159, H200).
    """
    order = sorted(range(len(temporaries)), key=lambda i: -temporaries[i].size_bytes)
    users: list[list[Lifetime]] = []
    places: dict[int, Place] = {}
    for i in order:
        one = temporaries[i]
        free = (
            buffer
            for buffer in reversed(range(len(users)))
            if all(other.last < one.first or one.last < other.first for other in users[buffer])
        )
        buffer = next(free, len(users))
        if buffer == len(users):
            users.append([])
        users[buffer].append(one)
        places[i] = Place(buffer, 0)
    sizes = tuple(of[0].size_bytes for of in users)
    return ArenaPlan(tuple(places[i] for i in range(len(temporaries))), sizes, are_whole=True)


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

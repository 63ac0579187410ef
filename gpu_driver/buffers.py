# SPDX-License-Identifier: Apache-2.0
"""Where temporaries lie in one arena: offsets by lifetime, so that memory is used again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Lifetime:
    """A temporary: its size and the first and last command that touch it (both included)."""

    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class ArenaPlan:
    """Offset in bytes of each temporary, in the order given, and the size of the arena."""

    offsets: tuple[int, ...]
    size_bytes: int


def plan_arena(temporaries: Sequence[Lifetime], alignment: int) -> ArenaPlan:
    """Place temporaries so that those alive at once do not overlap; larger ones first, each at its lowest gap.

    Source: greedy by size, Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020.
    """
    order = sorted(range(len(temporaries)), key=lambda i: (-temporaries[i].size_bytes, temporaries[i].first))
    offsets = [0] * len(temporaries)
    placed: list[int] = []
    total = 0
    for i in order:
        one = temporaries[i]
        rivals = sorted(
            (offsets[j], temporaries[j].size_bytes)
            for j in placed
            if temporaries[j].first <= one.last and one.first <= temporaries[j].last
        )
        offsets[i] = _lowest_gap(rivals, one.size_bytes, alignment)
        placed.append(i)
        total = max(total, offsets[i] + one.size_bytes)
    return ArenaPlan(tuple(offsets), total)


def _lowest_gap(rivals: Sequence[tuple[int, int]], size_bytes: int, alignment: int) -> int:
    offset = 0
    for start, length in rivals:
        if offset + size_bytes <= start:
            break
        offset = max(offset, -(-(start + length) // alignment) * alignment)
    return offset

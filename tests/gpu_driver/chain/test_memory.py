# SPDX-License-Identifier: Apache-2.0
"""Where the memories of a chain lie, and whose place one takes."""

from __future__ import annotations

from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.memory import ALIGNMENT, SMALL_BYTES, Memories, Placement
from gpu_driver.chain.step import Step, rows_of
from gpu_driver.kernel import Kernel, Scratch

BYTES = SMALL_BYTES + 100
"""Of a memory that is used again from the step on that is behind its last."""


def copied(source: Scratch, output: Scratch) -> Step:
    return Step(
        Kernel("chain.cl", "chain"),
        Kind.COPY,
        source,
        output,
        geometry=rows_of(1, BYTES),
    )


def test_a_memory_takes_the_place_of_all_that_lay_there_last() -> None:
    """Three beside each other, the middle one used for longest: what lies on one side of it was there last, too."""
    outer, made = Scratch(BYTES), Scratch(4 * BYTES)
    first, middle, last = parts = [Scratch(BYTES) for _ in range(3)]
    results = [Scratch(BYTES) for _ in range(4)]
    written = [copied(outer, part) for part in parts]
    read = [copied(part, result) for part, result in zip([first, last, middle], results, strict=False)]
    steps = [*written, *read, copied(outer, made), copied(made, results[3])]
    keys = {memory: key for key, memory in enumerate([outer, made, *parts, *results])}
    placement = Placement(steps, Memories(keys, frozenset(keys[one] for one in (made, *parts))))
    places = {one: placement.place(one) for one in (made, *parts)}
    assert places[made] == (0, 0)
    assert places[first] < places[middle] < places[last]
    assert places[last][1] * ALIGNMENT + BYTES <= made.size_bytes
    uses = {first: [0, 3], middle: [1, 5], last: [2, 4]}
    wanted = [(keys[one], places[one][1] * ALIGNMENT, uses[one]) for one in (middle, last, first)]
    assert placement.overwritten(made, 6) == wanted
    assert placement.overwritten(made, 4) == [wanted[2]]  # the others are still needed
    assert placement.overwritten(results[3], 7) == []  # memory of others

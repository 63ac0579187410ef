# SPDX-License-Identifier: Apache-2.0
"""Element-wise steps that read parts of rows where they lie, without copies: gates of recurrent cells, halves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.chain.elementwise import MEMORIES, WIDTH, program_step
from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.chain.memory import Memories
    from gpu_driver.chain.step import Step

_LEAST_PART = 64
"""Elements of a row: shorter ones are faster copied, and then gone through as one long row."""


def without_copies(steps: Sequence[Step], memories: Memories) -> tuple[Step, ...]:
    """Leave out the steps that only copy parts of rows for element-wise ones, which read them in their places."""
    found: list[Step | None] = list(steps)
    readers: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    for at, step in enumerate(steps):
        sources = (one for one in (step.source, step.residual, step.third) if one is not None)
        for key in {memories.key(one) for one in sources}:
            readers.setdefault(key, []).append(at)
        writers.setdefault(memories.key(step.output), []).append(at)
    for at, step in enumerate(steps):
        walk = _walk_of_part(step) if step.kind == Kind.COPY and memories.is_inner(step.output) else None
        key = memories.key(step.output)
        if walk is None or writers[key] != [at] or not readers.get(key):
            continue
        last = readers[key][-1]
        if any(at < writer < last for writer in writers.get(memories.key(step.source), ())):
            continue
        ways = [(reader, _reading(found[reader], step, walk, memories)) for reader in readers[key]]
        replaced = {reader: one for reader, one in ways if one is not None}
        if len(replaced) == len(ways):
            first = replaced[readers[key][0]]
            replaced[readers[key][0]] = replace(first, operations=(*step.operations, *first.operations))
            found[at] = None
            for reader, one in replaced.items():
                found[reader] = one
    return tuple(step for step in found if step is not None)


def _walk_of_part(copy: Step) -> Walk | None:
    """Return how the rows that a step copies are read in the source; None where they are not parts of its rows."""
    (values,) = copy.constants
    first, to, *places = values.tolist()
    sizes, from_strides, to_strides = places[:4], places[4:8], places[8:]
    rows, depth = copy.output_shape
    reads = copy.reads
    outer = [one for one in zip(sizes, from_strides, to_strides, strict=True) if one[0] > 1]
    if copy.writes_part or to or reads is None or len(outer) > 1:
        return None
    if depth > WIDTH if rows == 1 else depth < _LEAST_PART:  # cores could not share one long row
        return None
    if outer and (outer[0] != (rows, reads.depth, depth) or rows != reads.rows or first + depth > reads.depth):
        return None
    return Walk(reads.rows, reads.depth, rows, modulo=rows, step=1, part=first)


def _reading(reader: Step | None, copy: Step, walk: Walk, memories: Memories) -> Step | None:
    """Return an element-wise step that reads a part of rows; None for another, or one that reads the copy otherwise."""
    if reader is None or reader.kind != Kind.ELEMENTWISE:
        return None
    sources = reader.source, reader.residual, reader.third
    copied = {
        which
        for which, memory in zip(MEMORIES, sources, strict=True)
        if memory is not None and memories.are_same(memory, copy.output)
    }
    program = []
    for one in reader.program:
        own = one.walk
        if one.operand in copied and own is not None:
            if not own.is_plain or (own.out_rows, own.depth) != copy.output_shape:
                return None
            program.append(replace(one, walk=walk))
        else:
            program.append(one)
    kept = tuple(
        copy.source if which in copied else memory
        for which, memory in zip(MEMORIES, sources, strict=True)
        if memory is not None
    )
    found = program_step(reader.kernel, reader.output, kept, tuple(program), reader.output_shape)
    return found and replace(found, operations=reader.operations)

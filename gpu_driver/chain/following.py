# SPDX-License-Identifier: Apache-2.0
"""Element-wise operations that every task of the step before them does with what it has just written.

So they cost neither a step of their own, for which cores wait for each other, nor another way through memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.chain.elementwise import has_mean
from gpu_driver.chain.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.chain.memory import Memories
    from gpu_driver.chain.step import Memory, Reading, Step

_PRODUCTS = (Kind.CONVOLVE, Kind.DEPTHWISE, Kind.DEPTHWISE_BYTES, Kind.EXPANDED)


def with_following(steps: Sequence[Step], memories: Memories) -> tuple[Step, ...]:
    """Join products with the element-wise steps that alone read what they make."""
    used = memories.used_by(steps)
    result: list[Step] = []
    for step in steps:
        at = _maker(result, step, memories) if step.kind == Kind.ELEMENTWISE else None
        joined = None
        if at is not None and memories.is_inner(result[at].output) and used[memories.key(result[at].output)] == 2:
            joined = _joined(result[at], step, memories)
        if at is None or joined is None:
            result.append(step)
        else:
            result[at] = joined
    return tuple(result)


def _maker(steps: Sequence[Step], step: Step, memories: Memories) -> int | None:
    """Return which of the steps before makes what a step reads last; None where something is made later still.

    What the step makes is used by nobody before it.
    """
    read = {memories.key(memory) for memory in (step.source, step.residual, step.third) if memory is not None}
    return next((at for at in reversed(range(len(steps))) if memories.key(steps[at].output) in read), None)


def _joined(first: Step, step: Step, memories: Memories) -> Step | None:
    """Return one step for a product and what follows; None where they do not fit, or read too many memories."""
    if (
        first.kind not in _PRODUCTS
        or first.then is not None
        or first.writes_part
        or has_mean(step.program)  # a task may have a part of the channels
        or first.output_shape != step.output_shape
        or memories.are_same(first.output, step.output)
    ):
        return None
    others: list[tuple[Memory, Reading | None]] = [] if first.residual is None else [(first.residual, None)]
    for memory, reads in (
        (step.source, step.reads),
        (step.residual, step.reads_residual),
        (step.third, step.reads_third),
    ):
        if memory is not None and not memories.are_same(memory, first.output):
            others.append((memory, reads))
    if len(others) > 2:
        return None
    (residual, reads_residual), (third, reads_third) = [*others, *[(None, None)] * 2][:2]

    def in_place(memory: Memory | None) -> Memory | None:
        return step.output if memory is not None and memories.are_same(memory, first.output) else memory

    return replace(
        first,
        output=step.output,
        residual=residual,
        reads_residual=reads_residual,
        third=third,
        reads_third=reads_third,
        flops=first.flops + step.flops,
        bytes_moved=first.bytes_moved + step.bytes_moved - 2 * first.output.size_bytes,
        operations=(*first.operations, *step.operations),
        then=replace(
            step,
            source=in_place(step.source) or step.source,
            residual=in_place(step.residual),
            third=in_place(step.third),
        ),
    )

# SPDX-License-Identifier: Apache-2.0
"""Element-wise operations and SOFTMAX that every task of the step before them does with what it has just written.

So they cost neither a step of their own, for which cores wait for each other, nor another way through memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.chain.elementwise import has_sum
from gpu_driver.chain.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_driver.chain.memory import Memories
    from gpu_driver.chain.step import Memory, Reading, Step

_PRODUCTS = (
    *(Kind.CONVOLVE, Kind.DEPTHWISE, Kind.DEPTHWISE_BYTES, Kind.EXPANDED, Kind.MULTIPLY_BYTES),
    *(Kind.MULTIPLY, Kind.MULTIPLY_FEW),
)
_JOINED = (Kind.ELEMENTWISE, Kind.SOFTMAX)
_MOST_OTHERS = 2
"""Memories that a step reads beside its source."""


def with_epilogues(steps: Sequence[Step], memories: Memories) -> tuple[Step, ...]:
    """Join products with the element-wise steps and the SOFTMAX that alone read what they make."""
    used = memories.used_by(steps)
    made: set[int] = set()
    result: list[Step] = []
    for step in steps:
        read = made & {memories.key(one) for one in (step.source, step.residual, step.third) if one is not None}
        if step.kind not in _JOINED or not _join_product(result, step, read, memories, used):
            result.append(step)
        made.add(memories.key(step.output))
    return tuple(result)


def _join_product(before: list[Step], step: Step, read: set[int], memories: Memories, used: Mapping[int, int]) -> bool:
    """Join a step with one of those before it, which make what it reads; whether there is such.

    Where that made what the step reads last, the step is done in its place: what it makes is used by nobody before.
    Else that waits until now: nobody but the step reads what it makes, and nobody writes again what it reads.
    """
    makers: list[int] = []
    missing = set(read)
    for at in reversed(range(len(before))):
        if not missing:
            break
        if memories.key(before[at].output) in missing:
            missing.remove(memories.key(before[at].output))
            makers.append(at)
    for at in makers:
        first = before[at]
        is_alone = memories.is_inner(first.output) and used[memories.key(first.output)] == 2
        joined = _joined(first, step, memories) if is_alone else None
        if joined is None:
            continue
        if at == makers[0]:
            before[at] = joined
        else:
            del before[at]
            before.append(joined)
        return True
    return False


def _joined(first: Step, step: Step, memories: Memories) -> Step | None:
    """Return one step for a product and what follows; None where they do not fit, or read too many memories."""
    if step.kind == Kind.SOFTMAX:
        return _with_softmax(first, step, memories)
    if (
        first.kind not in _PRODUCTS
        or first.epilogue is not None
        or first.values.get("has_softmax")  # which comes last
        or has_sum(step.program)  # a task may have a part of the channels
        or first.output_shape != step.output_shape
    ):
        return None
    others = [] if first.residual is None else [(first.residual, first.reads_residual)]
    for memory, reads in (
        (step.source, step.reads),
        (step.residual, step.reads_residual),
        (step.third, step.reads_third),
    ):
        if memory is not None and not memories.are_same(memory, first.output):
            others.append((memory, reads))
    own_third = [] if first.third is None else [(first.third, first.reads_third)]
    free = _MOST_OTHERS - len(others) - len(own_third)
    if free < 0:
        return None
    every: list[tuple[Memory | None, Reading | None]] = [*others, *[(None, None)] * free, *own_third]
    (residual, reads_residual), (third, reads_third) = every
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
        epilogue=_in_place(step, first.output, step.output, memories),
    )


def _in_place(epilogue: Step, made: Memory, output: Memory, memories: Memories) -> Step:
    """Return an epilogue that goes over the output of all in the place of what its product made alone."""
    return epilogue.on({one: output for one in epilogue.memories if memories.are_same(one, made)})


def _with_softmax(product: Step, step: Step, memories: Memories) -> Step | None:
    """Return a product of matrices whose rows become their SOFTMAX while they are in a cache; None for another step."""
    if (
        product.kind not in (Kind.MULTIPLY, Kind.MULTIPLY_FEW)
        or product.values.get("has_softmax")  # of which this one is another
        or product.output_shape != step.output_shape
    ):
        return None
    return replace(
        product,
        output=step.output,
        epilogue=product.epilogue and _in_place(product.epilogue, product.output, step.output, memories),
        values={**product.values, "has_softmax": 1, "low": step.values["low"]},
        flops=product.flops + step.flops,
        bytes_moved=product.bytes_moved + step.bytes_moved - 2 * product.output.size_bytes,
        operations=(*product.operations, *step.operations),
    )

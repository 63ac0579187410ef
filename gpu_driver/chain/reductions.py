# SPDX-License-Identifier: Apache-2.0
"""Reductions as steps of a chain: sums, means, extremes, depthwise convolutions of whole pictures by equal shares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.elementwise import sum_of_row
from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import Reading, Step, rows_of
from gpu_driver.kernel import Scratch
from nn_runtime.codes import OperandCode
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.step import Instruction, Memory
    from gpu_driver.kernel import Kernel

_LANES = 16
_MOST_TERMS = 1 << 16
"""reduce_step.h adds real numbers without compensation."""
_FEW_ROWS, _LEAST_PART, _MOST_PARTS = 16, 512, 64
"""Of fewer rows the sums are made in so many parts, of so many terms, that cores can share."""


@dataclass(frozen=True)
class Scaling:
    """How a sum becomes a value: a real one by division by `weight`, an 8-bit one by a fixed-point multiplier.

    Times `weight`, plus `offset`, then by that multiplier, between `low` and `high`. extreme: 1 or -1, where the
    greatest or least element is the value instead.
    """

    weight: int = 1
    offset: int = 0
    multiplier: int = 0
    exponent: int = 0
    zero_point: int = 0
    low: int = 0
    high: int = 0
    extreme: int = 0


def fits_sum(terms: int, inner: int) -> bool:
    """Whether reduce_step.h adds [outer, terms, inner] up."""
    return terms <= _MOST_TERMS and (inner == 1 or inner >= _LANES)


def fits_extreme(terms: int, inner: int) -> bool:
    """Whether reduce_step.h finds the greatest of [outer, terms, inner]."""
    return inner == 1 and terms >= _LANES


def sum_steps(
    kernel: Kernel, source: BoundOperand, output: BoundOperand, sizes: tuple[int, int, int], divisor: int
) -> tuple[Step, ...]:
    """Return the steps from [outer, terms, inner] of real numbers to sums [outer, inner] over a divisor.

    None where reduce_step.h has no sums of such sizes. Few long rows are summed up in equal parts first.
    """
    outer, terms, inner = sizes
    is_exact_enough = source.type == OperandCode.TENSOR_FLOAT32  # to keep sums of parts
    parts = _parts(math.prod(source.dimensions[:-1]), outer, terms) if is_exact_enough and inner == 1 else 1
    if not fits_sum(terms // parts, inner):
        return ()
    if parts == 1:
        return (reduction_step(kernel, source, output, sizes, Scaling(divisor)),)
    sums = Scratch(output.size_bytes * parts)
    first = reduction_step(kernel, source, sums, (outer * parts, terms // parts, 1), Scaling())
    reads = Reading(outer * parts, 1, outer)
    return first, _step(kernel, (sums, output), (outer, parts, 1), Scaling(divisor), reads)


def reduction_step(
    kernel: Kernel, source: BoundOperand, output: Memory, sizes: tuple[int, int, int], scaling: Scaling
) -> Step:
    """Return the step that reduces [outer, terms, inner] to [outer, inner]."""
    outer, terms, inner = sizes
    rows, depth = math.prod(source.dimensions[:-1]), source.dimensions[-1]
    reads = Reading(rows, depth, outer if rows % outer == 0 else 1)
    is_of_row = ("QUANTIZED", 0) in kernel.defines and (terms, inner) == (depth, 1) and not scaling.extreme
    program = sum_of_row(source.dimensions, scaling.weight) if is_of_row else ()
    return _step(kernel, (source, output), sizes, scaling, reads, program)


def _step(
    kernel: Kernel,
    memories: tuple[Memory, Memory],
    sizes: tuple[int, int, int],
    scaling: Scaling,
    reads: Reading,
    program: tuple[Instruction, ...] = (),
) -> Step:
    outer, terms, inner = sizes
    numbers = (scaling.extreme, scaling.weight, scaling.offset, scaling.multiplier, scaling.exponent)
    return Step(
        kernel,
        Kind.REDUCE,
        *memories,
        geometry=rows_of(outer, inner),
        constants=(np.array((terms, inner, *numbers, scaling.zero_point), np.int32),),
        values={"low": scaling.low, "high": scaling.high},
        flops=math.prod(sizes),
        bytes_moved=sum(memory.size_bytes for memory in memories),
        reads=reads,
        program=program,
    )


def _parts(rows: int, outer: int, terms: int) -> int:
    """Return in how many parts of whole rows of the source each of few long rows is summed up; 1 for others."""
    of_each = rows // outer if rows % outer == 0 else 1
    if outer >= _FEW_ROWS or terms < 2 * _LEAST_PART:
        return 1
    most = min(_MOST_PARTS, terms // _LEAST_PART)
    return max(parts for parts in range(1, most + 1) if of_each % parts == 0)

# SPDX-License-Identifier: Apache-2.0
"""MEAN as a step of a chain, and what else adds up equal shares: a depthwise convolution of whole pictures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.elementwise import mean_of_row
from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import Reading, Step, rows_of
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.kernel import Kernel

_LANES = 16
_MOST_TERMS = 1 << 16
"""mean_step.h adds real numbers without compensation."""


@dataclass(frozen=True)
class Scaling:
    """How an 8-bit sum becomes a value: times `weight`, plus `offset`, then by a fixed-point multiplier."""

    weight: int = 1
    offset: int = 0
    multiplier: int = 0
    exponent: int = 0
    zero_point: int = 0
    low: int = 0
    high: int = 0


def fits_mean(terms: int, inner: int) -> bool:
    """Whether mean_step.h applies to [outer, terms, inner]."""
    return terms <= _MOST_TERMS and (inner == 1 or inner >= _LANES)


def mean_step(
    kernel: Kernel, source: BoundOperand, output: BoundOperand, sizes: tuple[int, int, int], scaling: Scaling
) -> Step:
    """Return the step that reduces [outer, terms, inner] to [outer, inner]."""
    outer, terms, inner = sizes
    numbers = (scaling.weight, scaling.offset, scaling.multiplier, scaling.exponent, scaling.zero_point)
    rows, depth = math.prod(source.dimensions[:-1]), source.dimensions[-1]
    is_of_row = ("QUANTIZED", 0) in kernel.defines and (terms, inner) == (depth, 1)
    return Step(
        kernel,
        Kind.MEAN,
        source,
        output,
        geometry=rows_of(outer, inner),
        constants=(np.array((terms, inner, *numbers), np.int32),),
        values={"low": scaling.low, "high": scaling.high},
        flops=source.count,
        bytes_moved=source.size_bytes + output.size_bytes,
        reads=Reading(rows, depth, outer if rows % outer == 0 else 1),
        program=mean_of_row(source.dimensions) if is_of_row else (),
    )

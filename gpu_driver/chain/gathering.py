# SPDX-License-Identifier: Apache-2.0
"""GATHER and EMBEDDING_LOOKUP as steps of a chain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import Reading, Step, rows_of

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.kernel import Fault, Kernel, Scalar, Scratch


def gather_step(
    kernel: Kernel,
    operands: tuple[BoundOperand, BoundOperand, BoundOperand],
    axis: int,
    negative: int,
    faults: tuple[Fault | Scratch, Scalar],
) -> Step:
    """Return the step of (source, indices, output), with what negative indices mean and who is told of wrong ones.

    negative: NEGATIVE_* of common/place.h.
    """
    source, indices, output = operands
    dims, chosen = source.dimensions, indices.count
    outer, inner = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    fault, number = faults
    return Step(
        kernel,
        Kind.GATHER,
        source,
        output,
        residual=indices,
        third=fault,
        geometry=rows_of(outer * chosen, inner),
        constants=(np.array((dims[axis], chosen, negative, int(number)), np.int32),),
        bytes_moved=2 * output.size_bytes + indices.size_bytes,
        reads=Reading(outer * dims[axis], inner, outer),
        reads_residual=Reading(1, chosen),
        reads_third=Reading(1, 1),
    )

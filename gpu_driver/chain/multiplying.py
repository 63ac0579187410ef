# SPDX-License-Identifier: Apache-2.0
"""Products of float32 matrices of which both are made meanwhile, as steps of a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.elementwise import program_step
from gpu_driver.chain.kinds import From, Function, Kind
from gpu_driver.chain.readings import walk_of
from gpu_driver.chain.step import Instruction, Reading, Step, rows_of
from gpu_driver.kernel import Scratch

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.step import Memory
    from gpu_driver.kernel import Kernel
    from nn_runtime.operations.batch_matmul import BatchMatmul

_LANES = 16
_FLOAT_BYTES = 4
_FEW_ROWS = 12
"""At most, that are multiplied by right sides as they are: of more, packing these is repaid (measured: 12 to 16)."""


def multiply_steps(
    kernel: Kernel, left: BoundOperand, right: BoundOperand, output: Memory, sizes: BatchMatmul
) -> tuple[Step, ...]:
    """Return the steps of products: right sides packed first, unless rows are few; left sides are not swapped."""
    batches, rows, columns, depth = sizes.batches, sizes.rows, sizes.columns, sizes.depth
    of_right = np.array([depth, columns, int(sizes.adj_y)], np.int32)
    geometry = replace(rows_of(rows, columns, batches), input_depth=depth)
    flops = 2 * batches * rows * columns * depth
    if rows <= _FEW_ROWS:
        moved = left.size_bytes + right.size_bytes + output.size_bytes
        read, lines = Reading(batches * rows, depth, batches), batches * (columns if sizes.adj_y else depth)
        return (
            Step(
                kernel,
                Kind.MULTIPLY_FEW,
                left,
                output,
                residual=right,
                geometry=geometry,
                constants=(of_right,),
                flops=flops,
                bytes_moved=moved,
                reads=read,
                reads_residual=Reading(lines, right.count // lines, batches),
            ),
        )
    blocks = -(-columns // _LANES)
    packed = Scratch(_FLOAT_BYTES * batches * blocks * _LANES * depth)
    packing = Step(
        kernel,
        Kind.PACK,
        right,
        packed,
        geometry=rows_of(batches * blocks, depth * _LANES),
        constants=(of_right,),
        bytes_moved=right.size_bytes + packed.size_bytes,
        reads=Reading(right.count // right.dimensions[-1], right.dimensions[-1], batches),
    )
    product = Step(
        kernel,
        Kind.MULTIPLY,
        left,
        output,
        residual=packed,
        geometry=geometry,
        flops=flops,
        bytes_moved=left.size_bytes + packed.size_bytes + output.size_bytes,
        reads=Reading(batches * rows, depth, batches),
        reads_residual=Reading(batches * blocks, depth * _LANES, batches),
    )
    return packing, product


def with_bias(
    kernel: Kernel,
    left: BoundOperand,
    right: BoundOperand,
    bias: BoundOperand,
    output: BoundOperand,
    sizes: BatchMatmul,
    bounds: tuple[float, float],
) -> tuple[Step, ...] | None:
    """Return the steps of one product to which a vector is added within bounds; None where the addition is no step."""
    if bias.constant is not None and not bias.constant.any() and not np.isfinite(bounds).any():
        return multiply_steps(kernel, left, right, output, sizes)
    shape = sizes.rows, sizes.columns
    product = Scratch(_FLOAT_BYTES * sizes.rows * sizes.columns)
    low, high = bounds
    addition = program_step(
        kernel,
        output,
        (product,) if bias.is_constant else (product, bias),
        (
            Instruction(Function.LOAD, From.SOURCE, walk_of(shape, shape)),
            Instruction(
                Function.ADD,
                From.CONSTANT if bias.is_constant else From.RESIDUAL,
                walk_of(bias.dimensions, shape),
                bias.constant if bias.is_constant else None,
                low=low,
                high=high,
            ),
        ),
        shape,
    )
    return None if addition is None else (*multiply_steps(kernel, left, right, product, sizes), addition)

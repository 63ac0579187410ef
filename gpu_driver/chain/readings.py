# SPDX-License-Identifier: Apache-2.0
"""How a step of a chain reads operands that are broadcast: rows of elements, in an order that all of them have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.step import Walk
from nn_runtime.codes import OperandCode
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.kernel import Kernel
    from nn_runtime.operand import Array, Dimensions

LEAST_ROW = 16
"""Elements of a vector: shorter rows are put together, or are one with those before and behind them."""
_MOST_CONSTANT_BYTES = 1 << 23


@dataclass(frozen=True)
class Readings:
    """Rows and elements of a row of the output; for each operand its walk, and the data of a constant as it is read."""

    shape: tuple[int, int]
    walks: tuple[Walk, ...]
    constants: tuple[Array | None, ...]


def readings_of(operands: Sequence[BoundOperand], output: BoundOperand, kernel: Kernel) -> Readings | None:
    """Return how operands are read where they are broadcast; None where one takes more than a Walk, or is too large.

    Truth values are real numbers then, equal elements one number. As few of the last dimensions are one as make rows
    that vectors go through, or that can be put together.
    """
    shapes: list[Dimensions] = []
    constants: list[Array | None] = []
    for one in operands:
        data, dims = one.constant, one.dimensions
        if data is not None and one.type == OperandCode.TENSOR_BOOL8:
            data = (data != 0).astype(real_type(kernel))
        if data is not None and data.size > 1 and _are_equal(data):
            data, dims = data.reshape(-1)[:1], (1,)
        if data is not None and data.nbytes > _MOST_CONSTANT_BYTES:
            return None
        shapes.append(dims)
        constants.append(data)
    whole = output.dimensions or (1,)
    if any(len(dims) > len(whole) for dims in shapes):
        return None
    aligned = [(1,) * (len(whole) - len(dims)) + dims for dims in shapes]
    found: Readings | None = None
    for count in range(1, len(whole) + 1):
        rows, depth = whole[:-count], math.prod(whole[-count:])
        if not all(dims[-count:] == whole[-count:] or math.prod(dims[-count:]) == 1 for dims in aligned):
            break
        merged = (walk_of((*dims[:-count], math.prod(dims[-count:])), (*rows, depth)) for dims in aligned)
        walks = tuple(walk for walk in merged if walk is not None)
        if len(walks) < len(aligned):
            continue
        found = Readings((math.prod(rows), depth), walks, tuple(constants))
        if depth >= LEAST_ROW or all(one.is_plain or one.is_scalar or one.is_same_row for one in walks):
            break
    return found


def walk_of(operand: Dimensions, output: Dimensions) -> Walk | None:
    """Return how an operand is read where it is broadcast to the output, None if it takes more than a Walk."""
    *outer, depth = output or (1,)
    dims = (1,) * (len(outer) + 1 - len(operand)) + operand
    if len(dims) != len(outer) + 1:
        return None
    own = [at for at, size in enumerate(dims[:-1]) if size > 1]
    first, last = (own[0], own[-1] + 1) if own else (0, 0)
    if list(dims[first:last]) != list(outer[first:last]):
        return None
    rows = math.prod(outer)
    modulo, divide = math.prod(outer[first:last]), math.prod(outer[last:]) if own else 1
    is_vector = dims[-1] == depth and math.prod(dims) > 1
    return Walk(math.prod(dims[:-1]), dims[-1], rows, divide, modulo, int(is_vector))


def real_type(kernel: Kernel) -> type[np.float32 | np.float16]:
    """Return the type of a kernel's elements, which are real numbers."""
    return np.float16 if dict(kernel.defines)["T"] == "half" else np.float32


def _are_equal(data: Array) -> bool:
    """Whether all elements have the same bits."""
    rows = np.ascontiguousarray(data).reshape(-1, 1).view(np.uint8)
    return bool((rows == rows[0]).all())

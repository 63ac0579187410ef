# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import centred, centred_bound, float_type
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.batch_matmul import batch_matmul_sizes
from nn_runtime.quantization import convolution_multipliers
from nn_runtime.requantization import requantize

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.BATCH_MATMUL)
def batch_matmul(op: OperationView) -> tuple[Array, ...]:
    """Return the products of pairs of matrices; 8-bit sums are exact, int32 wraps."""
    sizes, output = batch_matmul_sizes(op), op.outputs[0]
    left, right = op.array("lhs"), op.array("rhs")
    left = left.swapaxes(-1, -2) if sizes.adj_x else left
    right = right.swapaxes(-1, -2) if sizes.adj_y else right
    if op.data_type == OperandCode.TENSOR_INT32:
        return (_integers(left, right),)
    if op.data_type not in QUANT8_TYPES:
        result = np.matmul(left.astype(np.float32, copy=False), right.astype(np.float32, copy=False))
        return (result.astype(dtype_of(output.type), copy=False),)
    lhs, rhs = op.input("lhs"), op.input("rhs")
    dtype = float_type(sizes.depth * centred_bound(lhs) * centred_bound(rhs))
    sums = np.matmul(centred(left, lhs, dtype), centred(right, rhs, dtype))
    multipliers = convolution_multipliers(lhs, rhs, output)
    return (requantize(sums, np.zeros(sizes.columns), multipliers, output, FuseCode.NONE),)


def _integers(left: Array, right: Array) -> Array:
    """Return int32 products modulo 2^32, by exact float64 products of 16-bit halves."""
    left_low, left_high = _halves(left)
    right_low, right_high = _halves(right)
    crossed = left_high @ right_low + left_low @ right_high
    total = (left_low @ right_low).astype(np.int64) + (crossed.astype(np.int64) << 16)
    wrapped: Array = total.astype(np.int32)
    return wrapped


def _halves(values: Array) -> tuple[Array, Array]:
    return (values & 0xFFFF).astype(np.float64), (values >> 16).astype(np.float64)

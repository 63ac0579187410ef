# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.softmax import bit_lengths, softmax_reciprocal, softmax_tables
from nn_runtime.quantization import rounding_divide_by_pot, saturating_rounding_doubling_high_mul

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.SOFTMAX)
def softmax(op: OperationView) -> tuple[Array, ...]:
    """Return exp(beta * (x - max)) / sum over one axis; quantised values in fixed point."""
    values = op.array("input")
    axis = op.axis("axis", values.ndim, default=-1)
    if values.size == 0:
        return (values.astype(dtype_of(op.outputs[0].type)),)
    if op.data_type in QUANT8_TYPES:
        return (_quantized(op, values, axis),)
    real = values.astype(np.float32, copy=False)
    result = real - real.max(axis=axis, keepdims=True)
    result *= np.float32(op.float_value("beta"))
    np.exp(result, out=result)
    result /= result.sum(axis=axis, keepdims=True)
    return (result.astype(values.dtype, copy=False),)


def _quantized(op: OperationView, values: Array, axis: int) -> Array:
    tables = softmax_tables(op.float_value("beta"), op.input("input").scale)
    # Differences of the signed type fit the byte as well, taken modulo 256.
    differences = (values.max(axis=axis, keepdims=True) - values).view(np.uint8)
    sums = tables.terms.take(differences).sum(axis=axis, keepdims=True, dtype=np.int64)
    products = saturating_rounding_doubling_high_mul(tables.exponentials.take(differences), softmax_reciprocal(sums))
    result = np.minimum(rounding_divide_by_pot(products, bit_lengths(sums) + 3), 255)
    if values.dtype == np.int8:
        result -= 128
    return result.astype(values.dtype)

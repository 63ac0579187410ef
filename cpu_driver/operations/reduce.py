# SPDX-License-Identifier: Apache-2.0
"""MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.reduce import mean_multiplier, reduction
from nn_runtime.quantization import multiply_by_quantized_multiplier

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.MEAN)
def mean(op: OperationView) -> tuple[Array, ...]:
    """Return the mean over some axes; quantised values are summed exactly and divided in fixed point."""
    values, axes = op.array("input"), reduction(op).axes
    if op.data_type not in QUANT8_TYPES:
        return (values.mean(axis=axes, dtype=np.float64).astype(values.dtype, copy=False),)
    sums = np.asarray(values.sum(axis=axes, dtype=np.int64))
    count = values.size // max(sums.size, 1)
    multiplier, zero_point = mean_multiplier(count), op.input("input").zero_point
    centred = multiply_by_quantized_multiplier(sums - zero_point * count, multiplier.mantissa, multiplier.exponent)
    return ((centred + zero_point).astype(values.dtype),)


@computes(OperationCode.REDUCE_ALL, OperationCode.REDUCE_ANY)
def reduce_logical(op: OperationView) -> tuple[Array, ...]:
    """Return whether all, or any, elements over some axes are true."""
    values, axes = op.array("input").view(np.uint8), reduction(op).axes
    return (np.asarray(values.all(axis=axes) if op.code == OperationCode.REDUCE_ALL else values.any(axis=axes)),)


@computes(OperationCode.REDUCE_MAX, OperationCode.REDUCE_MIN)
def reduce_extreme(op: OperationView) -> tuple[Array, ...]:
    """Return the greatest or least element over some axes."""
    values, axes = op.array("input"), reduction(op).axes
    return (np.asarray(values.max(axis=axes) if op.code == OperationCode.REDUCE_MAX else values.min(axis=axes)),)


@computes(OperationCode.REDUCE_SUM, OperationCode.REDUCE_PROD)
def reduce_arithmetic(op: OperationView) -> tuple[Array, ...]:
    """Return the sum (taken in float64) or the product over some axes, which is 0 if any factor is."""
    values, axes = op.array("input"), reduction(op).axes
    if op.code == OperationCode.REDUCE_SUM:
        return (np.asarray(values.sum(axis=axes, dtype=np.float64)).astype(values.dtype),)
    product = np.where((values == 0).any(axis=axes), np.float32(0), values.prod(axis=axes, dtype=np.float32))
    return (product.astype(values.dtype, copy=False),)

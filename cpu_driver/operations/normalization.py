# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.normalization import L2_EPSILON, L2_OUTPUT_SCALE
from nn_runtime.quantization import (
    inverse_sqrt_multipliers,
    multiply_rounding_once,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

_INT32_MAX = 2**31 - 1


@computes(OperationCode.L2_NORMALIZATION)
def l2_normalization(op: OperationView) -> tuple[Array, ...]:
    """Return x / max(sqrt(sum x^2), 1e-6) along one axis; 8-bit values in fixed point."""
    values = op.array("input")
    axis = op.axis("axis", values.ndim, default=-1)
    if op.data_type in QUANT8_TYPES:
        return (_l2_quantized(values, axis, op.input("input").zero_point, op.outputs[0].zero_point),)
    real = values.astype(np.float32, copy=False)
    norms = np.sqrt(np.square(real).sum(axis=axis, keepdims=True))
    return ((real / np.maximum(norms, np.float32(L2_EPSILON))).astype(values.dtype, copy=False),)


def _l2_quantized(values: Array, axis: int, zero_point: int, output_zero_point: int) -> Array:
    centred = values.astype(np.int64) - zero_point
    sums = np.minimum(np.square(centred).sum(axis=axis, keepdims=True), _INT32_MAX)
    mantissas, shifts = inverse_sqrt_multipliers(sums)
    units = centred * round(1 / L2_OUTPUT_SCALE)
    if values.dtype == np.int8:  # which LiteRT rounds once
        results = multiply_rounding_once(units, mantissas, -shifts)
    else:
        results = rounding_divide_by_pot(saturating_rounding_doubling_high_mul(units, mantissas), shifts)
    results += output_zero_point
    info = np.iinfo(values.dtype)
    normalized: Array = results.clip(info.min, info.max).astype(values.dtype)
    return normalized


@computes(OperationCode.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(op: OperationView) -> tuple[Array, ...]:
    """Return x / (bias + alpha * sum of the squares of its neighbours up to `radius` along one axis)^beta."""
    values = op.array("input")
    real = np.moveaxis(values.astype(np.float32, copy=False), op.axis("axis", values.ndim, default=-1), -1)
    squares = np.square(real)
    sums = squares.copy()
    for distance in range(1, min(op.int_value("radius"), real.shape[-1] - 1) + 1):
        sums[..., distance:] += squares[..., :-distance]
        sums[..., :-distance] += squares[..., distance:]
    bias, alpha, beta = (np.float32(op.float_value(name)) for name in ("bias", "alpha", "beta"))
    result = real * np.power(bias + alpha * sums, -beta)
    result = np.moveaxis(result, -1, op.axis("axis", values.ndim, default=-1))
    return (np.ascontiguousarray(result, values.dtype),)


@computes(OperationCode.INSTANCE_NORMALIZATION)
def instance_normalization(op: OperationView) -> tuple[Array, ...]:
    """Return gamma * (x - mean) / sqrt(variance + epsilon) + beta, statistics over height and width."""
    values = op.array("input")
    area = (2, 3) if op.bool_value("layout") else (1, 2)
    gamma, beta, epsilon = (op.float_value(name) for name in ("gamma", "beta", "epsilon"))
    real = values.astype(np.float32, copy=False)
    result = real - real.mean(axis=area, keepdims=True, dtype=np.float64).astype(np.float32)
    variances = np.square(result).mean(axis=area, keepdims=True, dtype=np.float64)
    result *= (gamma / np.sqrt(variances + epsilon)).astype(np.float32)
    result += np.float32(beta)
    return (result.astype(values.dtype, copy=False),)

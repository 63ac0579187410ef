# SPDX-License-Identifier: Apache-2.0
"""RELU, RELU1, RELU6, LOGISTIC, TANH, HARD_SWISH, ELU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.activation import RELU_BOUNDS, activation_table
from nn_runtime.quantization import activation_range_float, activation_range_quantized

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6)
def relu(op: OperationView) -> tuple[Array, ...]:
    """Return the input cut to the operation's bounds."""
    bounds, output = RELU_BOUNDS[op.code], op.outputs[0]
    quantized = op.data_type in QUANT8_TYPES
    low, high = activation_range_quantized(bounds, output) if quantized else activation_range_float(bounds)
    return (np.clip(op.array("input"), low, high).astype(dtype_of(op.data_type), copy=False),)


@computes(OperationCode.LOGISTIC, OperationCode.TANH, OperationCode.HARD_SWISH)
def smooth(op: OperationView) -> tuple[Array, ...]:
    """Return the sigmoid, the hyperbolic tangent or x * relu6(x + 3) / 6; 8-bit data by a table."""
    values = op.array("input")
    if op.data_type in QUANT8_TYPES:
        return (activation_table(op.code, op.input("input"), op.outputs[0]).take(values.view(np.uint8)),)
    real = values.astype(np.float32, copy=False)
    return (_FUNCTIONS[op.code](real).astype(values.dtype, copy=False),)


@computes(OperationCode.ELU)
def elu(op: OperationView) -> tuple[Array, ...]:
    """Return max(0, x) + min(0, alpha * (exp(x) - 1)); a negative alpha so bends the positive side."""
    values = op.array("input")
    real = values.astype(np.float32, copy=False)
    # 0 * inf must not become NaN.
    curve = np.fmin(np.expm1(real) * np.float32(op.float_value("alpha")), 0)
    return ((np.maximum(real, 0) + curve).astype(values.dtype, copy=False),)


def logistic(real: Array) -> Array:
    """Return 1 / (1 + exp(-x)) of float32."""
    result = np.negative(real)
    with np.errstate(over="ignore"):  # of infinity, 0 is right
        np.exp(result, out=result)
    result += np.float32(1)
    np.divide(np.float32(1), result, out=result)
    return result


def _tanh(real: Array) -> Array:
    result: Array = np.tanh(real)
    return result


def _hard_swish(real: Array) -> Array:
    result: Array = real * (np.clip(real + np.float32(3), 0, 6) / np.float32(6))
    return result


_FUNCTIONS: dict[int, Callable[[Array], Array]] = {
    OperationCode.LOGISTIC: logistic,
    OperationCode.TANH: _tanh,
    OperationCode.HARD_SWISH: _hard_swish,
}

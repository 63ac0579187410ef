# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters, mul_multiplier
from nn_runtime.quantization import (
    FixedPointMultiplier,
    activation_range_float,
    activation_range_quantized,
    multiply_by_quantized_multiplier,
)

if TYPE_CHECKING:
    from nn_runtime.operand import Array, OperandView
    from nn_runtime.operations import OperationView

_Quantization = tuple[int, float, int]
"""Type, scale and zero point of an 8-bit operand."""


@computes(OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV)
def elementwise(op: OperationView) -> tuple[Array, ...]:
    """Return the broadcast sum, difference, product or quotient; int32 wraps and divides to the floor, x / 0 = 0."""
    if op.data_type in QUANT8_TYPES:
        return (_quantized(op),)
    if op.data_type == OperandCode.TENSOR_INT32:
        return (_integers(op.code, op.array("input0"), op.array("input1")),)
    first, second = (op.array(name).astype(np.float32, copy=False) for name in ("input0", "input1"))
    with np.errstate(all="ignore"):
        result: Array = _FLOAT_FUNCTIONS[op.code](first, second)
        low, high = activation_range_float(op.fuse_code())
        if low != -np.inf:
            result = np.clip(result, low, high, out=result)
        return (result.astype(dtype_of(op.data_type), copy=False),)


_FLOAT_FUNCTIONS: dict[int, np.ufunc] = {
    OperationCode.ADD: np.add,
    OperationCode.SUB: np.subtract,
    OperationCode.MUL: np.multiply,
    OperationCode.DIV: np.divide,
}


def _integers(code: int, first: Array, second: Array) -> Array:
    if code != OperationCode.DIV:
        wrapped: Array = _FLOAT_FUNCTIONS[code](first, second)
        return wrapped
    with np.errstate(all="ignore"):
        quotient: Array = np.where(second == 0, 0, np.floor_divide(first, second)).astype(np.int32)
    return quotient


def _quantized(op: OperationView) -> Array:
    first, second, output = op.input("input0"), op.input("input1"), op.outputs[0]
    table = _table(
        op.code,
        _quantization(first),
        _quantization(second),
        _quantization(output),
        activation_range_quantized(op.fuse_code(), output),
    )
    # uint16 index of [q0, q1], both as bytes.
    index = np.multiply(op.array("input0").view(np.uint8), np.uint16(256), dtype=np.uint16)
    pairs = np.bitwise_or(index, op.array("input1").view(np.uint8), dtype=np.uint16)
    return table.take(pairs)


def _quantization(operand: OperandView) -> _Quantization:
    return operand.type, operand.scale, operand.zero_point


@functools.lru_cache(maxsize=128)
def _table(
    code: int, first: _Quantization, second: _Quantization, output: _Quantization, bounds: tuple[int, int]
) -> Array:
    """Return the results for all 256 x 256 pairs of codes (64 KiB), in TFLite's reference arithmetic."""
    centred0, centred1 = _centred_codes(first)[:, None], _centred_codes(second)[None, :]
    scales = first[1], second[1], output[1]
    if code == OperationCode.MUL:
        real = _rescaled(centred0 * centred1, mul_multiplier(*scales))
    else:
        parameters = add_parameters(*scales)
        scaled0 = _rescaled(centred0 << ADD_LEFT_SHIFT, parameters.input0)
        scaled1 = _rescaled(centred1 << ADD_LEFT_SHIFT, parameters.input1)
        real = _rescaled(scaled0 + scaled1 if code == OperationCode.ADD else scaled0 - scaled1, parameters.output)
    results: Array = np.clip(real + output[2], *bounds).astype(dtype_of(output[0]))
    return results


def _centred_codes(quantization: _Quantization) -> Array:
    code, _, zero_point = quantization
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(code))
    centred: Array = codes.astype(np.int64) - zero_point
    return centred


def _rescaled(values: Array, multiplier: FixedPointMultiplier) -> Array:
    return multiply_by_quantized_multiplier(values, multiplier.mantissa, multiplier.exponent)

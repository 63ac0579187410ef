# SPDX-License-Identifier: Apache-2.0
"""Whole numbers of 8 and 16 bits, without a scale, as those of 32 bits, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.types import TensorType
from nn_runtime.tflite.values import Value, constant, int32, int32_vector

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_REAL, _INTEGERS = Value(OperandCode.TENSOR_FLOAT32), Value(OperandCode.TENSOR_INT32)
_BYTES, _SIGNED_BYTES = (
    Value(code, scale=1.0) for code in (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)
)
_REAL_TYPES = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)
_LEAST = {TensorType.INT8: -(1 << 7), TensorType.UINT8: 0, TensorType.INT16: -(1 << 15), TensorType.UINT16: 0}
_BITS = {TensorType.INT8: 8, TensorType.UINT8: 8, TensorType.INT16: 16, TensorType.UINT16: 16}


def bits_of(kind: TensorType) -> int:
    """Return how many bits an integer has of those that it is computed in."""
    return _BITS.get(kind, 32)


def are_whole(*values: Value) -> bool:
    """Tell whether values are of signed integers."""
    return all(value.type in (_INTEGERS.type, _SIGNED_BYTES.type) for value in values)


def plain(op: Operator, source: Value) -> Value:
    """Return numbers in a type that CAST takes: bytes for booleans, real numbers for signed bytes."""
    if source.type == _SIGNED_BYTES.type:
        raw = op.emit(OperationCode.CAST, [source], replace(source, scale=1.0, zero_point=0))
        return op.dequantize(raw)
    if source.type == _BYTES.type:
        return op.emit(OperationCode.CAST, [source], replace(source, scale=1.0, zero_point=0))
    return op.as_integers(source)


def whole_numbers(op: Operator, source: Value) -> Value:
    """Return numbers in 32 bits, of real ones what is before the point."""
    return source if source.type == _INTEGERS.type else op.emit(OperationCode.CAST, [plain(op, source)], _INTEGERS)


def as_output(op: Operator, numbers: Value) -> Value:
    """Return the lowest bits of 32-bit numbers, as many as the operator's output has; real ones as they are."""
    kind = op.output_tensor().type
    if kind not in _BITS:
        return numbers
    wrapped = _wrapped(op, numbers, _LEAST[kind], 1 << _BITS[kind])
    return _as_output(op, wrapped)


def cut_off(op: Operator, numbers: Value) -> Value:
    """Return real numbers as the integers of the operator's output; those beyond are its least or greatest."""
    kind = op.output_tensor().type
    if numbers.type != _REAL.type:
        numbers = op.emit(OperationCode.CAST, [numbers], _REAL)
    least = _LEAST[kind]
    for code, bound in ((OperationCode.MAXIMUM, least), (OperationCode.MINIMUM, least + (1 << _BITS[kind]) - 1)):
        numbers = op.emit(code, [numbers, constant(np.full(1, bound, np.float32))], _REAL)
    return _as_output(op, op.emit(OperationCode.CAST, [numbers], _INTEGERS))


def converted(op: Operator, source: Value) -> Value:
    """Return numbers as the integers of the operator's output: real ones cut off, of others the lowest bits."""
    return cut_off(op, source) if source.type in _REAL_TYPES else as_output(op, whole_numbers(op, source))


def _as_output(op: Operator, numbers: Value) -> Value:
    """Return numbers that the output's integers can hold; CAST makes no signed bytes, but QUANTIZE does."""
    kind = op.output_tensor().type
    if _BITS[kind] == 16:
        return numbers
    if kind is TensorType.UINT8:
        return op.same_integers(op.emit(OperationCode.CAST, [numbers], _BYTES), op.prototype())
    real_numbers = op.emit(OperationCode.CAST, [numbers], _REAL)
    return op.same_integers(op.emit(OperationCode.QUANTIZE, [real_numbers], _SIGNED_BYTES), op.prototype())


def _wrapped(op: Operator, numbers: Value, least: int, count: int) -> Value:
    """Return whole numbers less as often `count` as brings them to `least` and above; NNAPI's CAST cuts off."""
    times = _with_integer(op, OperationCode.DIV, _with_integer(op, OperationCode.SUB, numbers, least), count)
    beyond = _with_integer(op, OperationCode.MUL, times, count)
    return op.emit(OperationCode.SUB, [numbers, beyond, int32(FuseCode.NONE)], _INTEGERS)


def _with_integer(op: Operator, code: OperationCode, value: Value, number: int) -> Value:
    return op.emit(code, [value, int32_vector([number]), int32(FuseCode.NONE)], _INTEGERS)

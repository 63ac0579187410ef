# SPDX-License-Identifier: Apache-2.0
"""Booleans as bytes and back: most of NNAPI's operations that only move elements do not take them, RESHAPE for one.

What makes one of the other works on operands, whatever the ranks of the tensors that they stand for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.tflite.values import Value, int32_vector, operand_dimensions

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.model_builder import ModelBuilder


def as_integers(builder: ModelBuilder, value: Value) -> Value:
    """Return a boolean value as bytes 0 and 1; any other as it is."""
    if value.type != OperandCode.TENSOR_BOOL8:
        return value
    kind = Value(OperandCode.TENSOR_QUANT8_ASYMM, value.shape, 1.0)
    if value.data is not None:
        return replace(kind, data=value.data.astype(np.uint8))
    known = builder.bytes_of(value)
    shape = value.shape or ()
    if known is not None:
        return reshaped(builder, known, shape)
    builder.budget.spend(2 * math.prod(shape))
    ones, zeros = (replace(kind, data=np.full(shape, number, np.uint8)) for number in (1, 0))
    made = builder.append(OperationCode.SELECT, [value, ones, zeros], [kind])[0]
    builder.keep_bytes(value, made)
    return made


def as_booleans(builder: ModelBuilder, value: Value) -> Value:
    """Return where numbers are not 0."""
    zero = replace(value, shape=(1,), data=np.full(1, value.zero_point, dtype_of(value.type)))
    return builder.append(OperationCode.NOT_EQUAL, [value, zero], [Value(OperandCode.TENSOR_BOOL8, value.shape)])[0]


def booleans_of(builder: ModelBuilder, bytes_: Value) -> Value:
    """Return the booleans of bytes 0 and 1, as which `as_integers` gives these again."""
    made = as_booleans(builder, bytes_)
    builder.keep_bytes(made, bytes_)
    return made


def reshaped(builder: ModelBuilder, value: Value, shape: Dimensions) -> Value:
    """Return a value under another shape of as many elements, by RESHAPE where the operand's dimensions change."""
    if value.data is not None:
        return replace(value, shape=shape, data=value.data.reshape(shape))
    if value.shape == shape:
        return value
    dims = operand_dimensions(shape)
    if dims != value.dimensions:
        plain = as_integers(builder, builder.renamed(value, value.dimensions or ()))
        moved = builder.append(OperationCode.RESHAPE, [plain, int32_vector(dims)], [plain])[0]
        value = booleans_of(builder, moved) if value.type == OperandCode.TENSOR_BOOL8 else moved
    return builder.renamed(value, shape)

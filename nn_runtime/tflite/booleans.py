# SPDX-License-Identifier: Apache-2.0
"""Booleans as bytes and back: most of NNAPI's operations that only move elements do not take them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.tflite.values import Value

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.graph_builder import GraphBuilder


def as_integers(builder: GraphBuilder, value: Value) -> Value:
    """Return a boolean value as bytes 0 and 1; any other as it is."""
    if value.type != OperandCode.TENSOR_BOOL8:
        return value
    kind = Value(OperandCode.TENSOR_QUANT8_ASYMM, value.shape, 1.0)
    if value.data is not None:
        return replace(kind, data=value.data.astype(np.uint8))
    known = builder.bytes_of(value)
    if known is not None:
        return known
    shape = value.shape or ()
    builder.budget.spend(2 * math.prod(shape))
    ones, zeros = (replace(kind, data=np.full(shape, number, np.uint8)) for number in (1, 0))
    made = builder.emit(OperationCode.SELECT, [value, ones, zeros], [replace(kind, shape=None)])[0]
    builder.keep_bytes(value, made)
    return made


def as_booleans(builder: GraphBuilder, value: Value) -> Value:
    """Return where a value is not 0."""
    if value.type == OperandCode.TENSOR_BOOL8:
        return value
    zero = replace(value, shape=(1,), data=np.full(1, value.zero_point, dtype_of(value.type)))
    return builder.emit(OperationCode.NOT_EQUAL, [value, zero], [Value(OperandCode.TENSOR_BOOL8)])[0]


def booleans_of(builder: GraphBuilder, bytes_: Value) -> Value:
    """Return the booleans of bytes 0 and 1, as which `as_integers` gives these again."""
    made = as_booleans(builder, bytes_)
    builder.keep_bytes(made, bytes_)
    return made


def repeated_booleans(builder: GraphBuilder, value: Value, shape: Dimensions) -> Value:
    """Return booleans repeated to a shape of the same rank: compared with zeros, by the broadcasting of NOT_EQUAL."""
    bytes_ = as_integers(builder, value)
    missing = tuple(size if own == 1 else 1 for own, size in zip(value.shape or (), shape, strict=True))
    builder.budget.spend(math.prod(missing))
    zeros = replace(bytes_, shape=missing, data=np.zeros(missing, np.uint8))
    return builder.emit(OperationCode.NOT_EQUAL, [bytes_, zeros], [Value(OperandCode.TENSOR_BOOL8)])[0]

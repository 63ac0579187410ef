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
    from nn_runtime.tflite.graph_builder import GraphBuilder


def as_integers(builder: GraphBuilder, value: Value) -> Value:
    """Return a boolean value as bytes 0 and 1; any other as it is."""
    if value.type != OperandCode.TENSOR_BOOL8:
        return value
    kind = Value(OperandCode.TENSOR_QUANT8_ASYMM, value.shape, 1.0)
    if value.data is not None:
        return replace(kind, data=value.data.astype(np.uint8))
    shape = value.shape or ()
    builder.budget.spend(2 * math.prod(shape))
    ones, zeros = (replace(kind, data=np.full(shape, number, np.uint8)) for number in (1, 0))
    return builder.emit(OperationCode.SELECT, [value, ones, zeros], [replace(kind, shape=None)])[0]


def as_booleans(builder: GraphBuilder, value: Value) -> Value:
    """Return where a value is not 0."""
    if value.type == OperandCode.TENSOR_BOOL8:
        return value
    zero = replace(value, shape=(1,), data=np.full(1, value.zero_point, dtype_of(value.type)))
    return builder.emit(OperationCode.NOT_EQUAL, [value, zero], [Value(OperandCode.TENSOR_BOOL8)])[0]

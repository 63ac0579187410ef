# SPDX-License-Identifier: Apache-2.0
"""Products of the sizes that networks have, with constant weights: what random operations never draw."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import FLOAT_TYPES, dtype_of
from nn_runtime.testing.drawing import Value
from nn_runtime.testing.random_graph import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.operand import Dimensions

_SCALE = 0.0625
_SAME = 1
_IMAGES = ((16, 16, 8, 16), (32, 32, 32, 64), (14, 14, 96, 160), (7, 7, 256, 512), (56, 56, 64, 128), (56, 56, 128, 64))
"""Height, width, depth and depth of the output."""
_MATRICES = ((1, 64, 64), (1, 1024, 512), (32, 128, 128), (64, 256, 512), (256, 1024, 512), (512, 512, 1024))
"""Rows, depth and columns."""


def product_nodes(code: int, data_type: int) -> Iterator[Node]:
    """Return operations of realistic sizes for CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, BATCH_MATMUL; else none."""
    if code == OperationCode.CONV_2D:
        for height, width, depth, depth_out in _IMAGES:
            for size in (1, 3):
                yield _convolution(data_type, (1, height, width, depth), (depth_out, size, size, depth), depth_out)
    elif code == OperationCode.DEPTHWISE_CONV_2D:
        for height, width, depth, _ in _IMAGES:
            yield _convolution(data_type, (1, height, width, depth), (1, 3, 3, depth), depth)
    elif code == OperationCode.FULLY_CONNECTED:
        for rows, depth, columns in _MATRICES:
            inputs = (_tensor(data_type, (rows, depth)), *_weights(data_type, (columns, depth), columns), _number(0))
            yield Node(OperationCode.FULLY_CONNECTED, inputs, (_tensor(data_type, (rows, columns)),))
    elif code == OperationCode.BATCH_MATMUL:
        for rows, depth, columns in _MATRICES:
            inputs = (_tensor(data_type, (rows, depth)), _tensor(data_type, (depth, columns)), _bool(), _bool())
            yield Node(OperationCode.BATCH_MATMUL, inputs, (_tensor(data_type, (rows, columns)),))


def _convolution(data_type: int, image: Dimensions, weights: Dimensions, depth_out: int) -> Node:
    depthwise = weights[0] == 1 and depth_out != 1
    numbers = [_SAME, 1, 1, *([1] if depthwise else []), 0]
    inputs = (_tensor(data_type, image), *_weights(data_type, weights, depth_out), *map(_number, numbers))
    code = OperationCode.DEPTHWISE_CONV_2D if depthwise else OperationCode.CONV_2D
    return Node(code, inputs, (_tensor(data_type, (*image[:3], depth_out)),))


def _tensor(data_type: int, dims: Dimensions, constant: bool = False) -> Value:
    floating = data_type in FLOAT_TYPES or data_type == OperandCode.TENSOR_INT32
    unsigned = data_type == OperandCode.TENSOR_QUANT8_ASYMM
    data = np.arange(math.prod(dims)) % 13 - (0 if unsigned else 6)
    array = (data / 16 if data_type in FLOAT_TYPES else data).astype(dtype_of(data_type)).reshape(dims)
    return Value(data_type, dims, 0.0 if floating else _SCALE, 128 if unsigned else 0, array=array, constant=constant)


def _weights(data_type: int, dims: Dimensions, columns: int) -> tuple[Value, Value]:
    weights = _tensor(data_type, dims, constant=True)
    if data_type in FLOAT_TYPES:
        return weights, _tensor(data_type, (columns,), constant=True)
    bias = np.zeros(columns, np.int32)
    return weights, Value(OperandCode.TENSOR_INT32, (columns,), _SCALE * _SCALE, array=bias, constant=True)


def _number(value: int) -> Value:
    return Value(OperandCode.INT32, array=np.array(value, np.int32), constant=True)


def _bool() -> Value:
    return Value(OperandCode.BOOL, array=np.array(False), constant=True)

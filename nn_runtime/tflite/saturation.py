# SPDX-License-Identifier: Apache-2.0
"""Which operators can leave the range of 16-bit integers that are computed in real numbers (`sixteen_bit`).

TFLite's kernels end with the least or greatest integer there. Nothing is to be done for what only moves numbers, or
makes others between them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.types import Bounds, TensorType

if TYPE_CHECKING:
    from nn_runtime.tflite.operator_inputs import OperatorInputs
    from nn_runtime.tflite.types import TfliteTensor

_EVERYTHING = (-math.inf, math.inf)
_BYTES = frozenset({TensorType.INT8, TensorType.UINT8})
_WITH_ZEROS = frozenset(
    {BuiltinOperator.PAD, BuiltinOperator.PADV2, BuiltinOperator.SPACE_TO_BATCH_ND, BuiltinOperator.RELU}
)
_UNBOUNDED = frozenset({BuiltinOperator.IF, BuiltinOperator.WHILE, BuiltinOperator.STABLEHLO_COMPOSITE})
"""Calls, whose results others give bounds."""
_BETWEEN_INPUTS = _WITH_ZEROS | frozenset(
    {
        *(BuiltinOperator.RESHAPE, BuiltinOperator.SQUEEZE, BuiltinOperator.EXPAND_DIMS, BuiltinOperator.TRANSPOSE),
        *(BuiltinOperator.SLICE, BuiltinOperator.STRIDED_SLICE, BuiltinOperator.SPLIT, BuiltinOperator.SPLIT_V),
        *(BuiltinOperator.PACK, BuiltinOperator.UNPACK, BuiltinOperator.CONCATENATION, BuiltinOperator.TILE),
        *(BuiltinOperator.GATHER, BuiltinOperator.GATHER_ND, BuiltinOperator.BROADCAST_TO, BuiltinOperator.REVERSE_V2),
        *(BuiltinOperator.DEPTH_TO_SPACE, BuiltinOperator.SPACE_TO_DEPTH, BuiltinOperator.MIRROR_PAD),
        *(BuiltinOperator.MAX_POOL_2D, BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MEAN),
        *(BuiltinOperator.REDUCE_MAX, BuiltinOperator.REDUCE_MIN, BuiltinOperator.QUANTIZE),
        *(BuiltinOperator.MAXIMUM, BuiltinOperator.MINIMUM, BuiltinOperator.SELECT, BuiltinOperator.SELECT_V2),
        *(BuiltinOperator.RESIZE_BILINEAR, BuiltinOperator.RESIZE_NEAREST_NEIGHBOR),
        BuiltinOperator.BATCH_TO_SPACE_ND,
    }
)
_FIXED: dict[int, Bounds] = {
    **dict.fromkeys((BuiltinOperator.LOGISTIC, BuiltinOperator.SOFTMAX, BuiltinOperator.RELU_0_TO_1), (0.0, 1.0)),
    **dict.fromkeys((BuiltinOperator.TANH, BuiltinOperator.SIN, BuiltinOperator.COS), (-1.0, 1.0)),
    BuiltinOperator.L2_NORMALIZATION: (-1.0, 1.0),
    BuiltinOperator.RELU_N1_TO_1: (-1.0, 1.0),
    BuiltinOperator.RELU6: (0.0, 6.0),
    BuiltinOperator.EXP: (0.0, math.inf),
}
_ACTIVATIONS: dict[int, Bounds] = {
    FuseCode.RELU: (0.0, math.inf),
    FuseCode.RELU1: (-1.0, 1.0),
    FuseCode.RELU6: (0.0, 6.0),
}


def bounds_of(tensor: TfliteTensor) -> Bounds:
    """Return the least and greatest number of a tensor of quantised integers of one scale."""
    if tensor.quantization is None or tensor.type.dtype is None:
        return _EVERYTHING
    info, zero_point = np.iinfo(tensor.type.dtype.char), int(tensor.quantization.zero_points[0])
    scale = float(tensor.quantization.scales[0])
    return scale * (info.min - zero_point), scale * (info.max - zero_point)


def exceeded(op: OperatorInputs, tensor: TfliteTensor) -> Bounds:
    """Return the bounds of an output that the operator may leave by more than a step, infinities for others."""
    if tensor.bounds is None or op.code in _UNBOUNDED:
        return _EVERYTHING
    (least, greatest), (low, high) = tensor.bounds, _range(op)
    step = (greatest - least) / np.iinfo(np.uint16).max
    return least if low < least - step else -math.inf, greatest if high > greatest + step else math.inf


def _range(op: OperatorInputs) -> Bounds:
    """Return between what numbers the results of an operator are."""
    low, high = _FIXED.get(op.code, _EVERYTHING)
    if op.code in _BETWEEN_INPUTS:
        given = [_range_of(op.input_tensor(at)) for at in range(op.input_count) if op.optional(at) is not None]
        bounds = [one for one in given if one is not None] or [_EVERYTHING]
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        if op.code in _WITH_ZEROS:
            low, high = min(low, 0.0), max(high, 0.0)
    least, greatest = _ACTIVATIONS.get(op.activation(), _EVERYTHING)
    return min(max(low, least), greatest), max(min(high, greatest), least)


def _range_of(tensor: TfliteTensor) -> Bounds | None:
    """Return between what numbers those of an input are, None for one that is none of the data."""
    if tensor.bounds is not None:
        return tensor.bounds
    if tensor.type in _BYTES and tensor.quantization is not None:
        return bounds_of(tensor)
    return _EVERYTHING if tensor.type is TensorType.FLOAT32 else None

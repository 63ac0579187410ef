# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.mean import MeanWindow, mean_filter
from nn_runtime.tflite.operators import converts, integers
from nn_runtime.tflite.operators.shape import transposed
from nn_runtime.tflite.types import TensorType
from nn_runtime.tflite.values import constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_OF_BOOLEANS = {
    OperationCode.REDUCE_SUM: OperationCode.REDUCE_ANY,
    OperationCode.REDUCE_MAX: OperationCode.REDUCE_ANY,
    OperationCode.REDUCE_PROD: OperationCode.REDUCE_ALL,
    OperationCode.REDUCE_MIN: OperationCode.REDUCE_ALL,
}


@converts(BuiltinOperator.MEAN, inputs=2, version=3)
def _mean(op: Operator) -> None:
    """(input, axes). TFLite's quantised mean rounds and may rescale, which NNAPI's does not.

    Axes that are no neighbours become the last ones.
    """
    source = op.input(0, "input")
    shape = source.shape or ()
    axes = sorted({op.axis(axis, len(shape)) for axis in op.integers(1, "axes")})
    wanted = op.prototype()
    if source.type != wanted.type:
        op.fail(f"the output must have the type of the input, got {op.output_tensor().type.name}")
    if not axes:
        op.result(op.requantize(source, wanted) if source.is_quantized else source)
        return
    if source.type == OperandCode.TENSOR_INT32:
        count = constant(np.array([math.prod(shape[axis] for axis in axes)], np.int32))
        mean = integers.truncated_quotient(op, integers.reduced(op, OperationCode.REDUCE_SUM, source, axes), count)
        op.result(op.reshape(mean, _remaining(op, source, axes)))
        return
    if not source.is_quantized:
        op.result(op.emit(OperationCode.MEAN, [source, *_reduction(op, axes)]))
        return
    are_apart = axes[-1] - axes[0] >= len(axes)
    order = sorted(range(len(shape)), key=lambda axis: are_apart and axis in axes)
    window = MeanWindow.of([shape[axis] for axis in order], [order.index(axis) for axis in axes])
    if not window.fits(source, wanted):
        op.result(op.through_float(OperationCode.MEAN, [source], _reduction(op, axes)))
        return
    mean = _mean_by_convolution(op, transposed(op, source, order) if are_apart else source, window)
    op.result(op.reshape(mean, _remaining(op, source, axes)))


def _reduction(op: Operator, axes: Sequence[int]) -> list[Value]:
    return [int32_vector(axes), int32(op.option("keep_dims"))]


def _remaining(op: Operator, source: Value, axes: Sequence[int]) -> Sequence[int]:
    """Return the shape of what is reduced over some axes, [1] where nothing is left of it."""
    shape, keeps = source.shape or (), op.option("keep_dims")
    return [1 if at in axes else size for at, size in enumerate(shape) if keeps or at not in axes] or (1,)


def _mean_by_convolution(op: Operator, source: Value, window: MeanWindow) -> Value:
    """Return the means as [outer, 1, 1, inner]."""
    inputs = [op.reshape(source, window.input_shape), *mean_filter(window, source, op.prototype())]
    inputs += [int32(PaddingCode.VALID), int32(1), int32(1)]
    if window.is_of_channels:
        return op.emit(OperationCode.CONV_2D, [*inputs, int32(FuseCode.NONE)])
    return op.emit(OperationCode.DEPTHWISE_CONV_2D, [*inputs, int32(1), int32(FuseCode.NONE)])


def _arg_extremum(op: Operator, code: OperationCode) -> None:
    """ARG_MAX, ARG_MIN: (input, axis); an INT64 result is computed in 32 bits."""
    source = op.as_integers(op.input(0, "input"))
    if op.output_tensor().type not in (TensorType.INT32, TensorType.INT64):
        op.fail(f"the output must be INT32 or INT64, got {op.output_tensor().type.name}")
    axis = op.axis(op.integer(1, "axis"), len(source.shape or ()))
    op.result(op.emit(code, [source, int32(axis)]))


@converts(BuiltinOperator.ARG_MAX, inputs=2, version=3)
def _arg_max(op: Operator) -> None:
    _arg_extremum(op, OperationCode.ARGMAX)


@converts(BuiltinOperator.ARG_MIN, inputs=2, version=3)
def _arg_min(op: Operator) -> None:
    _arg_extremum(op, OperationCode.ARGMIN)


def _reduced(op: Operator, code: OperationCode) -> None:
    """SUM and its kin: (input, axes); without axes nothing is reduced."""
    source = op.input(0, "input")
    axes = sorted({op.axis(axis, source.rank) for axis in op.integers(1, "axes")})
    if source.type == OperandCode.TENSOR_BOOL8:
        code = _OF_BOOLEANS.get(code, code)
    may_rescale = source.is_quantized and code in (OperationCode.REDUCE_SUM, OperationCode.REDUCE_PROD)
    if not axes and may_rescale:
        op.result(op.requantize(source, op.prototype()))
        return
    if not axes:
        op.result_of_same_quantization(source)
        return
    rest = [int32_vector(axes), scalar(OperandCode.BOOL, bool(op.option("keep_dims")))]
    if source.type == OperandCode.TENSOR_INT32:
        op.result(op.reshape(integers.reduced(op, code, source, axes), _remaining(op, source, axes)))
    elif may_rescale:
        op.result(op.through_float(code, [source], rest))
    else:
        op.result_of_same_quantization(op.emit(code, [source, *rest], source))


@converts(BuiltinOperator.SUM, inputs=2, version=2)
def _sum(op: Operator) -> None:
    _reduced(op, OperationCode.REDUCE_SUM)


@converts(BuiltinOperator.REDUCE_PROD, inputs=2, version=2)
def _reduce_prod(op: Operator) -> None:
    _reduced(op, OperationCode.REDUCE_PROD)


@converts(BuiltinOperator.REDUCE_MAX, inputs=2, version=3)
def _reduce_max(op: Operator) -> None:
    _reduced(op, OperationCode.REDUCE_MAX)


@converts(BuiltinOperator.REDUCE_MIN, inputs=2, version=3)
def _reduce_min(op: Operator) -> None:
    _reduced(op, OperationCode.REDUCE_MIN)


@converts(BuiltinOperator.REDUCE_ANY, inputs=2)
def _reduce_any(op: Operator) -> None:
    _reduced(op, OperationCode.REDUCE_ANY)


@converts(BuiltinOperator.REDUCE_ALL, inputs=2)
def _reduce_all(op: Operator) -> None:
    _reduced(op, OperationCode.REDUCE_ALL)

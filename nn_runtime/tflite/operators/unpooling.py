# SPDX-License-Identifier: Apache-2.0
"""MediaPipe's custom operators that pool, and put back what they found where it was: its segmentation of hair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.tflite.custom_options import SAME, structure
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, int32_vector, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Dimensions
    from nn_runtime.tflite.operator import Operator

_MEMBERS = ("padding", "stride_width", "stride_height", "filter_width", "filter_height")
_ACTIVATIONS = {1: OperationCode.RELU, 2: OperationCode.RELU1, 3: OperationCode.RELU6}
_REAL = Value(OperandCode.TENSOR_FLOAT32)
_INDEX_OFFSET = 0.1
"""MediaPipe adds it to an index, so that none is cut to the one before."""


@converts("MaxPoolingWithArgmax2D", inputs=1, outputs=2)
def _max_pool_with_index(op: Operator) -> None:
    """(input [batches, height, width, depth]) -> the greatest of each window, and its number in it, both real."""
    source = _picture(op, 0, "input")
    batches, *sizes, depth = source.shape or (0, 0, 0, 0)
    padding, window, activation = _options(op)
    if padding == SAME:
        source = _padded(op, source, [-size % tap for size, tap in zip(sizes, window, strict=True)])
    height, width = ((source.shape or ())[axis] // window[axis - 1] for axis in (1, 2))
    if min(height, width) < 1:
        op.fail(f"windows {list(window)} must fit into the input, got {sizes}")
    covered = (batches, height * window[0], width * window[1], depth)
    if source.shape != covered:
        source = op.emit(OperationCode.SLICE, [source, int32_vector((0, 0, 0, 0)), int32_vector(covered)], _REAL)
    windows = _by_window(op, source, window)
    shape = (batches, height, width, depth)
    greatest = op.emit(OperationCode.REDUCE_MAX, [windows, int32_vector([1]), scalar(OperandCode.BOOL, False)], _REAL)
    if activation:
        greatest = op.emit(_ACTIVATIONS[activation], [greatest], _REAL)
    number = op.emit(OperationCode.ARGMAX, [windows, int32(1)], Value(OperandCode.TENSOR_INT32))
    offset = constant(np.full((1, 1), _INDEX_OFFSET, np.float32))
    index = op.emit(
        OperationCode.ADD, [op.emit(OperationCode.CAST, [number], _REAL), offset, int32(FuseCode.NONE)], _REAL
    )
    op.result(op.reshape(greatest, shape), 0)
    op.result(op.reshape(index, shape), 1)


@converts("MaxUnpooling2D", inputs=2)
def _max_unpool(op: Operator) -> None:
    """(input [batches, height, width, depth], numbers in windows) -> zeros, but for what has a place in its window."""
    source, index = (_picture(op, position, name) for position, name in enumerate(("input", "indices")))
    if source.shape != index.shape:
        op.fail(f"indices (input 1) must be {list(source.shape or ())}, got {list(index.shape or ())}")
    batches, height, width, depth = source.shape or (0, 0, 0, 0)
    _, window, _ = _options(op)
    taps, pixels = window[0] * window[1], batches * height * width
    op.spend(taps)
    wanted = op.emit(OperationCode.FLOOR, [op.reshape(index, (pixels, 1, depth))], _REAL)
    places = constant(np.arange(taps, dtype=np.float32).reshape(1, taps, 1))
    is_there = op.emit(OperationCode.EQUAL, [wanted, places], Value(OperandCode.TENSOR_BOOL8))
    values = op.broadcast(op.reshape(source, (pixels, 1, depth)), (pixels, taps, depth))
    windows = op.emit(OperationCode.SELECT, [is_there, values, op.zeros_like(values)], _REAL)
    rows = _exchanged(op, op.reshape(windows, (batches * height, width, window[0], window[1] * depth)))
    op.result(op.reshape(rows, (batches, height * window[0], width * window[1], depth)))


def _picture(op: Operator, position: int, name: str) -> Value:
    value = op.input(position, name, rank=4)
    if value.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"{name} (input {position}) must be FLOAT32, got {OperandCode(value.type).name}")
    return value


def _options(op: Operator) -> tuple[int, tuple[int, int], int]:
    """Return padding, height and width of windows, and the activation, of TfLitePoolParams."""
    padding, stride_width, stride_height, width, height, *later = structure(op, _MEMBERS)
    if (stride_height, stride_width) != (height, width):
        op.fail(f"strides must be those of windows of {height} x {width}, got {stride_height} x {stride_width}")
    activation = later[0] if later else 0
    if activation and activation not in _ACTIVATIONS:
        op.fail(f"fused activation {activation} is not supported (0 NONE, 1 RELU, 2 RELU_N1_TO_1, 3 RELU6)")
    return padding, (height, width), activation


def _padded(op: Operator, source: Value, missing: Sequence[int]) -> Value:
    """Return a picture with so many rows and columns more, less than any number; the greater half behind."""
    if not any(missing):
        return source
    paddings = [[0, 0], *([total // 2, total - total // 2] for total in missing), [0, 0]]
    least = scalar(OperandCode.FLOAT32, float(np.finfo(np.float32).min))
    return op.emit(OperationCode.PAD_V2, [source, constant(np.array(paddings, np.int32)), least], _REAL)


def _by_window(op: Operator, source: Value, window: tuple[int, int]) -> Value:
    """Return [batches * height * width, taps, depth] of a picture of whole windows."""
    batches, rows, columns, depth = source.shape or (0, 0, 0, 0)
    height, width = rows // window[0], columns // window[1]
    lines = op.reshape(source, (batches * height, window[0], width, window[1] * depth))
    shape: Dimensions = (batches * height * width, window[0] * window[1], depth)
    return op.reshape(_exchanged(op, lines), shape)


def _exchanged(op: Operator, value: Value) -> Value:
    """Return a value of four dimensions, the inner two of which change places."""
    return op.emit(OperationCode.TRANSPOSE, [value, int32_vector((0, 2, 1, 3))], _REAL)

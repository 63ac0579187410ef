# SPDX-License-Identifier: Apache-2.0
"""Images in another size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import constant, int32, scalar

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value


def _resize(op: Operator, code: OperationCode) -> None:
    """(input, size [height, width])."""
    source = op.input(0, "input", rank=4)
    size = op.by_dimension(1, "size")
    if len(size) != 2:
        op.fail(f"size (input 1) must be height and width, got {size}")
    flags = [op.option("align_corners"), op.option("half_pixel_centers")]
    inputs = [source, int32(size[1]), int32(size[0]), scalar(OperandCode.BOOL, False)]
    if any(flags):
        inputs += [scalar(OperandCode.BOOL, bool(flag)) for flag in flags]
    op.result_of_same_quantization(op.moved(code, source, *inputs[1:]))


@converts(BuiltinOperator.RESIZE_BILINEAR, inputs=2, version=4)
def _resize_bilinear(op: Operator) -> None:
    _resize(op, OperationCode.RESIZE_BILINEAR)


@converts(BuiltinOperator.RESIZE_NEAREST_NEIGHBOR, inputs=2, version=4)
def _resize_nearest_neighbor(op: Operator) -> None:
    source = op.input(0, "input", rank=4)
    has_both_flags = op.option("align_corners") and op.option("half_pixel_centers")
    if source.type == OperandCode.TENSOR_INT32 or has_both_flags:
        op.result_of_same_quantization(_gathered(op, source))
    else:
        _resize(op, OperationCode.RESIZE_NEAREST_NEIGHBOR)


def _gathered(op: Operator, source: Value) -> Value:
    """Return a picture in another size where NNAPI has no RESIZE_NEAREST_NEIGHBOR: of its rows, then of its columns."""
    sizes, wanted = (source.shape or ())[1:3], op.by_dimension(1, "size")
    if len(wanted) != 2 or min(wanted) < 1:
        op.fail(f"size (input 1) must be height and width > 0, got {wanted}")
    for axis, pair in enumerate(zip(sizes, wanted, strict=True), start=1):
        op.spend(pair[1])
        source = op.moved(OperationCode.GATHER, source, int32(axis), constant(_nearest(op, *pair)))
    return source


def _nearest(op: Operator, size: int, wanted: int) -> Array:
    """Return for each index of an axis in another size the nearest one, by float32 numbers as TFLite's kernel has."""
    is_aligned = bool(op.option("align_corners"))
    is_scaled = is_aligned and wanted > 1
    step = np.float32(size - is_scaled) / np.float32(wanted - is_scaled)
    offset = np.float32(0.5 if op.option("half_pixel_centers") else 0)
    places = (np.arange(wanted, dtype=np.float32) + offset) * step
    nearest: Array = np.floor(places + np.float32(0.5) if is_aligned else places)
    return np.clip(nearest, 0, size - 1).astype(np.int32)

# SPDX-License-Identifier: Apache-2.0
"""Images in another size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import int32, scalar

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_MAX_INTEGERS = 1 << 20


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
    if source.type == OperandCode.TENSOR_INT32:
        op.result(_nearest_integers(op, source))
    else:
        _resize(op, OperationCode.RESIZE_NEAREST_NEIGHBOR)


def _nearest_integers(op: Operator, source: Value) -> Value:
    """Return 32-bit integers in another size, for which NNAPI has no RESIZE_NEAREST_NEIGHBOR."""
    batches, *sizes, depth = source.shape or ()
    wanted = op.by_dimension(1, "size")
    if len(wanted) != 2 or min(wanted) < 1 or batches * math.prod(wanted) * depth > _MAX_INTEGERS:
        op.fail(f"size (input 1) must be height and width, of {_MAX_INTEGERS} elements at most, got {wanted}")
    rows, columns = (_nearest(op, *pair) for pair in zip(sizes, wanted, strict=True))
    return op.rearranged(source, op.numbers(source)[:, rows][:, :, columns])


def _nearest(op: Operator, size: int, wanted: int) -> Array:
    """Return for each index of an axis in another size the nearest one, by float32 numbers as TFLite's kernel has."""
    is_aligned = bool(op.option("align_corners"))
    is_scaled = is_aligned and wanted > 1
    step = np.float32(size - is_scaled) / np.float32(wanted - is_scaled)
    offset = np.float32(0.5 if op.option("half_pixel_centers") else 0)
    places = (np.arange(wanted, dtype=np.float32) + offset) * step
    nearest: Array = np.floor(places + np.float32(0.5) if is_aligned else places)
    return np.clip(nearest, 0, size - 1).astype(np.int32)

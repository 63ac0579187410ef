# SPDX-License-Identifier: Apache-2.0
"""Images in another size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import int32, scalar

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


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
    op.result_of_same_quantization(op.emit(code, inputs, source))


@converts(BuiltinOperator.RESIZE_BILINEAR, inputs=2, version=4)
def _resize_bilinear(op: Operator) -> None:
    _resize(op, OperationCode.RESIZE_BILINEAR)


@converts(BuiltinOperator.RESIZE_NEAREST_NEIGHBOR, inputs=2, version=4)
def _resize_nearest_neighbor(op: Operator) -> None:
    _resize(op, OperationCode.RESIZE_NEAREST_NEIGHBOR)

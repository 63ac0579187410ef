# SPDX-License-Identifier: Apache-2.0
"""Pooling of windows of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.convolution import padding_scheme
from nn_runtime.tflite.values import int32

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator


def _pool(op: Operator, code: OperationCode) -> None:
    """Emit a pooling: (input)."""
    source = op.input(0, "input", rank=4)
    sizes = [int32(op.option(name)) for name in ("stride_w", "stride_h", "filter_width", "filter_height")]
    inputs = [source, padding_scheme(op), *sizes, int32(op.activation())]
    op.result_of_same_quantization(op.emit(code, inputs, source))


@converts(BuiltinOperator.AVERAGE_POOL_2D, inputs=1, version=3)
def _average_pool_2d(op: Operator) -> None:
    _pool(op, OperationCode.AVERAGE_POOL_2D)


@converts(BuiltinOperator.MAX_POOL_2D, inputs=1, version=3)
def _max_pool_2d(op: Operator) -> None:
    _pool(op, OperationCode.MAX_POOL_2D)


@converts(BuiltinOperator.L2_POOL_2D, inputs=1)
def _l2_pool_2d(op: Operator) -> None:
    _pool(op, OperationCode.L2_POOL_2D)

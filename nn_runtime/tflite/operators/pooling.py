# SPDX-License-Identifier: Apache-2.0
"""Pooling of windows of an image."""

from __future__ import annotations

def _pool(op: Operator, code: OperationCode) -> None:
    """AVERAGE_POOL_2D, MAX_POOL_2D: (input)."""
    source = op.input(0, "input", rank=4)
    sizes = [int32(op.option(name)) for name in ("stride_w", "stride_h", "filter_width", "filter_height")]
    inputs = [source, _padding(op), *sizes, int32(op.activation())]
    op.result_of_same_quantization(op.emit(code, inputs, source))


@converts(BuiltinOperator.AVERAGE_POOL_2D)
def _average_pool_2d(op: Operator) -> None:
    _pool(op, OperationCode.AVERAGE_POOL_2D)


@converts(BuiltinOperator.MAX_POOL_2D)
def _max_pool_2d(op: Operator) -> None:
    _pool(op, OperationCode.MAX_POOL_2D)

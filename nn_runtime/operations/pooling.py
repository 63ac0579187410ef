# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, check_same_quantization
from nn_runtime.operations.signature import INT32, Definition, Input, OperationView, Output, Variant, define
from nn_runtime.operations.sliding_window import (
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    LAYOUT,
    STRIDES,
    SlidingWindow,
    image_dimensions,
    sliding_window,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.operand import Dimensions


def pooling_geometry(op: OperationView) -> SlidingWindow:
    """Return the geometry of a pooling operation whose sizes and scalars are known; raises BadData.

    Every window holds at least one input pixel: no padding reaches the filter's size.
    """
    height, width = op.int_value("filter_height"), op.int_value("filter_width")
    for name, size in (("filter_height", height), ("filter_width", width)):
        if size < 1:
            op.fail(name, "must be > 0", size)
    window = sliding_window(op, height, width, image_dimensions(op)[3])
    if height <= max(window.padding_top, window.padding_bottom):
        op.fail("filter_height", f"must be > paddings {window.padding_top} and {window.padding_bottom}", height)
    if width <= max(window.padding_left, window.padding_right):
        op.fail("filter_width", f"must be > paddings {window.padding_left} and {window.padding_right}", width)
    return window


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_0


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (pooling_geometry(op).output_dimensions,)


def _define(code: OperationCode, data_types: Mapping[int, FeatureLevel] = FLOAT_AND_QUANT8) -> None:
    tail = (
        *STRIDES,
        Input("filter_width", INT32),
        Input("filter_height", INT32),
        Input("activation", INT32),
        LAYOUT,
    )
    data = Input("input", rank=(4, 4))
    define(
        Definition(
            code,
            (
                Variant((data, *EXPLICIT_PADDING, *tail), name="explicit padding"),
                Variant((data, *IMPLICIT_PADDING, *tail), name="implicit padding"),
            ),
            (Output("output", rank=(4, 4)),),
            data_types,
            _prepare,
            _check,
            zero_sized_ok=True,
        )
    )


_define(OperationCode.AVERAGE_POOL_2D)
_define(OperationCode.MAX_POOL_2D)
_define(
    OperationCode.L2_POOL_2D,
    {OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0, OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2},
)

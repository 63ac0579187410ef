# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV_2D: every input pixel spread over a window of the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FuseCode, OperationCode, PaddingCode
from nn_runtime.operations.grouped_conv import TENSORS, check_filter_channels, filter_dimensions
from nn_runtime.operations.rules import HAL_1_2_FLOAT_AND_QUANT8
from nn_runtime.operations.signature import (
    BOOL,
    INT32,
    INT32_TENSOR,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)
from nn_runtime.operations.sliding_window import (
    EXPLICIT_PADDING,
    MOST_PADDING,
    STRIDES,
    check_padding,
    image_dimensions,
    step_taken,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class TransposeConvolution:
    """Geometry: filter [output_depth, filter_height, filter_width, input_depth].

    Input pixel y and filter tap t add to output pixel y * stride - padding + t, where that is inside the output.
    """

    batches: int
    input_height: int
    input_width: int
    input_depth: int
    output_height: int
    output_width: int
    output_depth: int
    filter_height: int
    filter_width: int
    stride_height: int
    stride_width: int
    padding_top: int
    padding_left: int
    nchw: bool
    activation: FuseCode

    @property
    def output_dimensions(self) -> Dimensions:
        """Dimensions of the output in the operation's layout."""
        height, width, depth = self.output_height, self.output_width, self.output_depth
        return (self.batches, depth, height, width) if self.nchw else (self.batches, height, width, depth)


def transpose_convolution(op: OperationView) -> TransposeConvolution:
    """Return the geometry of a TRANSPOSE_CONV_2D whose sizes and values are known; raises BadData."""
    output_depth, filter_height, filter_width, filter_depth = filter_dimensions(op)
    batches, height, width, depth = image_dimensions(op)
    if filter_depth != depth:
        op.fail("filter", f"must have depth {depth}, that of the input", filter_depth)
    nchw = op.bool_value("layout")
    stride_height, top, bottom = _axis(op, "height", ("top", "bottom"), filter_height, 2 if nchw else 1)
    stride_width, left, right = _axis(op, "width", ("left", "right"), filter_width, 3 if nchw else 2)
    output_height = (height - 1) * stride_height + filter_height - top - bottom
    output_width = (width - 1) * stride_width + filter_width - left - right
    if output_height < 1 or output_width < 1:
        op.fail("input", "must leave an output", f"{output_height} x {output_width}")
    return TransposeConvolution(
        batches=batches,
        input_height=height,
        input_width=width,
        input_depth=depth,
        output_height=output_height,
        output_width=output_width,
        output_depth=output_depth,
        filter_height=filter_height,
        filter_width=filter_width,
        stride_height=step_taken(stride_height, height),
        stride_width=step_taken(stride_width, width),
        padding_top=top,
        padding_left=left,
        nchw=nchw,
        activation=op.fuse_code(),
    )


def _axis(
    op: OperationView, axis: str, sides: tuple[str, str], filter_size: int, shape_axis: int
) -> tuple[int, int, int]:
    """Return stride, padding before and padding after.

    A negative one after makes the output larger: a convolution with strides may have had the input from several sizes.
    """
    stride = op.int_value(f"stride_{axis}")
    if stride < 1:
        op.fail(f"stride_{axis}", "must be > 0", stride)
    if op.optional("padding_scheme") is None:
        before, after = (f"padding_{side}" for side in sides)
        head, tail = op.int_value(before), op.int_value(after)
        check_padding(op, **{before: head})
        check_padding(op, least=-MOST_PADDING, **{after: tail})
        return stride, head, tail
    scheme, shape = op.int_value("padding_scheme"), op.int_values("output_shape")
    if len(shape) != 4 or min(shape[1:]) < 1:
        op.fail("output_shape", "must have 4 sizes > 0 (batches >= 0)", shape)
    if scheme == PaddingCode.VALID:
        return stride, 0, 0
    if scheme != PaddingCode.SAME:
        op.fail("padding_scheme", "must be 1 (SAME) or 2 (VALID)", scheme)
    size = shape[shape_axis]
    # What the convolution that this one transposes would need.
    total = (-(-size // stride) - 1) * stride + filter_size - size
    head = max(total, 0) // 2
    return stride, head, total - head


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (transpose_convolution(op).output_dimensions,)


_TAIL = (*STRIDES, Input("activation", INT32), Input("layout", BOOL))
_OUTPUT_SHAPE = Input("output_shape", INT32_TENSOR, (1, 1), parameter=True)

define(
    Definition(
        OperationCode.TRANSPOSE_CONV_2D,
        (
            Variant((*TENSORS, *EXPLICIT_PADDING, *_TAIL), name="explicit padding"),
            Variant((*TENSORS, _OUTPUT_SHAPE, Input("padding_scheme", INT32), *_TAIL), name="implicit padding"),
        ),
        (Output("output", rank=(4, 4)),),
        HAL_1_2_FLOAT_AND_QUANT8,
        _prepare,
        check_filter_channels,
        zero_sized_ok=True,
    )
)

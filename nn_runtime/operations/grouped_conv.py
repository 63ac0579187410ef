# SPDX-License-Identifier: Apache-2.0
"""GROUPED_CONV_2D: a convolution whose channels are split into groups of their own."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperationCode
from nn_runtime.operations.conv import CONV_CHANNEL_DIM, check_bias_scale, filter_types
from nn_runtime.operations.rules import HAL_1_2_FLOAT_AND_QUANT8
from nn_runtime.operations.signature import (
    BOOL,
    INT32,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    bias_of_data,
    define,
)
from nn_runtime.operations.sliding_window import (
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    STRIDES,
    SlidingWindow,
    sliding_window,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

TENSORS = (Input("input", rank=(4, 4)), Input("filter", filter_types, (4, 4)), Input("bias", bias_of_data, (1, 1)))
"""Tensor inputs of the convolutions that HAL 1.2 brought."""


@dataclass(frozen=True)
class GroupedConvolution(SlidingWindow):
    """Geometry: filter [output_depth, filter_height, filter_width, input_depth / groups].

    Output channel c belongs to group c // (output_depth / groups), which reads its own input_depth / groups channels.
    """

    groups: int = 1


def grouped_convolution(op: OperationView) -> GroupedConvolution:
    """Return the geometry of a GROUPED_CONV_2D whose sizes and scalars are known; raises BadData."""
    output_depth, filter_height, filter_width, group_depth = filter_dimensions(op)
    groups = op.int_value("num_groups")
    window = sliding_window(op, filter_height, filter_width, output_depth)
    if groups < 1 or output_depth % groups or window.input_depth != groups * group_depth:
        wanted = f"must divide the filter's depth {output_depth} and be {window.input_depth} / {group_depth}"
        op.fail("num_groups", wanted, groups)
    if max(window.padding_top, window.padding_bottom) >= filter_height:
        op.fail("filter", f"must be higher than paddings {window.padding_top}, {window.padding_bottom}", filter_height)
    if max(window.padding_left, window.padding_right) >= filter_width:
        op.fail("filter", f"must be wider than paddings {window.padding_left}, {window.padding_right}", filter_width)
    known = {field.name: getattr(window, field.name) for field in fields(window)}
    return GroupedConvolution(**known, groups=groups)


def filter_dimensions(op: OperationView) -> tuple[int, int, int, int]:
    """Return the sizes of a filter, the output depth first, after checking them and the bias; raises BadData."""
    dims = op.dimensions("filter")
    if len(dims) != 4 or 0 in dims:
        op.fail("filter", "must have rank 4 and no size 0", list(dims))
    if op.dimensions("bias") != dims[:1]:
        op.fail("bias", f"must have dimensions [{dims[0]}]", list(op.dimensions("bias")))
    check_bias_scale(op, op.input("filter"))
    return dims[0], dims[1], dims[2], dims[3]


def check_filter_channels(op: OperationView) -> FeatureLevel:
    """Check the channel dimension of a per-channel filter."""
    quant = op.input("filter").channel_quant
    if quant is not None and quant.channel_dim != CONV_CHANNEL_DIM:
        op.fail("filter", f"must have channel dimension {CONV_CHANNEL_DIM}", quant.channel_dim)
    return FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (grouped_convolution(op).output_dimensions,)


_TAIL = (*STRIDES, Input("num_groups", INT32), Input("activation", INT32), Input("layout", BOOL))

define(
    Definition(
        OperationCode.GROUPED_CONV_2D,
        (
            Variant((*TENSORS, *EXPLICIT_PADDING, *_TAIL), name="explicit padding"),
            Variant((*TENSORS, *IMPLICIT_PADDING, *_TAIL), name="implicit padding"),
        ),
        (Output("output", rank=(4, 4)),),
        HAL_1_2_FLOAT_AND_QUANT8,
        _prepare,
        check_filter_channels,
    )
)

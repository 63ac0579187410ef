# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.rules import FLOAT_AND_QUANT8
from nn_runtime.operations.signature import (
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
    LAYOUT,
    STRIDES,
    SlidingWindow,
    image_dimensions,
    sliding_window,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Dimensions, OperandView

CONV_CHANNEL_DIM = 0
DEPTHWISE_CHANNEL_DIM = 3


@dataclass(frozen=True)
class Convolution(SlidingWindow):
    """Geometry of a convolution.

    CONV_2D: `depth_multiplier` 0, filter [output_depth, filter_height, filter_width, input_depth]. DEPTHWISE_CONV_2D:
    filter [1, filter_height, filter_width, output_depth]; output channel c reads input channel c // depth_multiplier.
    """

    depth_multiplier: int = 0

    @property
    def depthwise(self) -> bool:
        """Whether each output channel reads one input channel."""
        return self.depth_multiplier > 0


def convolution_geometry(op: OperationView) -> Convolution:
    """Return the geometry of a CONV_2D or DEPTHWISE_CONV_2D whose sizes and scalars are known; raises BadData."""
    filter_dims = op.dimensions("filter")
    if len(filter_dims) != 4 or 0 in filter_dims:
        op.fail("filter", "must have rank 4 and no size 0", list(filter_dims))
    depthwise = op.code == OperationCode.DEPTHWISE_CONV_2D
    output_depth = filter_dims[DEPTHWISE_CHANNEL_DIM if depthwise else CONV_CHANNEL_DIM]
    if op.dimensions("bias") != (output_depth,):
        op.fail("bias", f"must have dimensions [{output_depth}]", list(op.dimensions("bias")))
    depth_multiplier = _depth_multiplier(op, filter_dims) if depthwise else 0
    window = sliding_window(op, filter_dims[1], filter_dims[2], output_depth)
    if not depthwise and window.input_depth != filter_dims[3]:
        op.fail("filter", f"must have depth {window.input_depth}, that of the input", list(filter_dims))
    known = {field.name: getattr(window, field.name) for field in fields(window)}
    return Convolution(**known, depth_multiplier=depth_multiplier)


def check_bias_scale(op: OperationView, weights: OperandView) -> None:
    """Check that a quantised bias has scale input * weights to 1e-6 relative; per-channel filters have none."""
    source, bias = op.input("input"), op.input("bias")
    if source.type not in QUANT8_TYPES or weights.type == OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        return
    product = source.scale * weights.scale
    if abs(product - bias.scale) > 1e-6 * min(product, bias.scale):
        op.fail("bias", f"must have scale {product} (input * weights)", bias.scale)


def scale_level(op: OperationView, weights: OperandView) -> FeatureLevel:
    """Return HAL 1.2 for quantised products that 1.0 did not allow, else 1.0.

    The rule was meant for the output's scale, but the runtime compares the input's; kept, since it is observable.
    """
    source = op.input("input")
    if source.type == OperandCode.TENSOR_QUANT8_ASYMM and source.scale <= source.scale * weights.scale:
        return FeatureLevel.HAL_1_2
    return FeatureLevel.HAL_1_0


def _depth_multiplier(op: OperationView, filter_dims: Dimensions) -> int:
    depth_multiplier, depth = op.int_value("depth_multiplier"), image_dimensions(op)[3]
    if filter_dims[0] != 1:
        op.fail("filter", "must have first size 1", list(filter_dims))
    if depth_multiplier < 1 or depth * depth_multiplier != filter_dims[3]:
        op.fail("depth_multiplier", f"times {depth} must be the filter's depth {filter_dims[3]}", depth_multiplier)
    return depth_multiplier


def filter_types(data_type: int) -> Iterable[int]:
    """Allow the data type, for 8-bit data also per-channel weights."""
    if data_type in QUANT8_TYPES:
        return data_type, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
    return (data_type,)


def _check(op: OperationView) -> FeatureLevel:
    weights = op.input("filter")
    if weights.channel_quant is None:
        return scale_level(op, weights)
    wanted = DEPTHWISE_CHANNEL_DIM if op.code == OperationCode.DEPTHWISE_CONV_2D else CONV_CHANNEL_DIM
    if weights.channel_quant.channel_dim != wanted:
        op.fail("filter", f"must have channel dimension {wanted}", weights.channel_quant.channel_dim)
    return FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    geometry = convolution_geometry(op)
    check_bias_scale(op, op.input("filter"))
    return (geometry.output_dimensions,)


def _define(code: OperationCode, after_strides: tuple[Input, ...]) -> None:
    tensors = (Input("input", rank=(4, 4)), Input("filter", filter_types, (4, 4)), Input("bias", bias_of_data, (1, 1)))
    since = FeatureLevel.HAL_1_2
    tail = (
        *STRIDES,
        *after_strides,
        Input("activation", INT32),
        LAYOUT,
        Input("dilation_width", INT32, optional=True, since=since),
        Input("dilation_height", INT32, optional=True, since=since),
    )
    variants = []
    for name, padding in (("explicit padding", EXPLICIT_PADDING), ("implicit padding", IMPLICIT_PADDING)):
        inputs = (*tensors, *padding, *tail)
        every = len(inputs)
        # One dilation alone is not legal.
        variants.append(Variant(inputs, counts=(every - 3, every - 2, every), name=name))
    define(
        Definition(
            code,
            tuple(variants),
            (Output("output", rank=(4, 4)),),
            FLOAT_AND_QUANT8,
            _prepare,
            _check,
            zero_sized_ok=True,
        )
    )


_define(OperationCode.CONV_2D, ())
_define(OperationCode.DEPTHWISE_CONV_2D, (Input("depth_multiplier", INT32),))

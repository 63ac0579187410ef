# SPDX-License-Identifier: Apache-2.0
"""Arguments that convolution, pooling and the operations that move data refuse, and the message that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.errors import BadData
from nn_runtime.operand import ChannelQuant, Dimensions
from nn_runtime.operations import OperationView, output_dimensions, validate

if TYPE_CHECKING:
    from nn_runtime.operand import Array

FLOAT, QUANT8, INT32 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32
CONV, DEPTHWISE = OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D


@dataclass(frozen=True)
class Known:
    """An operand for rules alone."""

    type: int
    dimensions: Dimensions | None
    data: tuple[int, ...] | None = None
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    omitted: bool = False

    def value(self) -> Array | None:
        return None if self.data is None else np.array(self.data, np.int32).reshape(self.dimensions or ())

    def subgraph(self) -> None:
        return None


def tensor(*dims: int, code: int = FLOAT) -> Known:
    return Known(code, dims, scale=0.5 if code == QUANT8 else 0.0)


def ints(*values: int) -> Known:
    return Known(INT32, (len(values),), values)


def scalars(*values: int) -> tuple[Known, ...]:
    return tuple(Known(OperandCode.INT32, (), (value,)) for value in values)


def conv(*numbers: int) -> tuple[Known, ...]:
    return (tensor(1, 4, 4, 3), tensor(2, 3, 3, 3), tensor(2), *scalars(*numbers))


def pool(*numbers: int) -> tuple[Known, ...]:
    return (tensor(1, 4, 4, 3), *scalars(*numbers))


def strided(begin: Known, end: Known, strides: Known, *masks: int) -> tuple[Known, ...]:
    return (tensor(4, 6), begin, end, strides, *scalars(*masks))


FALSE = Known(OperandCode.BOOL, (), (0,))

REFUSED = [
    (CONV, conv(3, 1, 1, 0), "padding_scheme (input 3) must be 1 (SAME) or 2 (VALID), got 3"),
    (CONV, conv(1, 0, 1, 0), "stride_width (input 4) must be > 0, got 0"),
    (CONV, conv(1, 1, 1, 4), "activation (input 6) must be a fuse code 0 to 3, got 4"),
    (CONV, conv(0, 0, -1, 0, 1, 1, 0), "padding_top (input 5) must be 0 to 16777216, got -1"),
    (CONV, conv(0, 2**31 - 1, 0, 0, 1, 1, 0), "padding_right (input 4) must be 0 to 16777216, got 2147483647"),
    (
        CONV,
        (*conv(1, 1, 1, 0), FALSE, *scalars(2**30, 1)),
        "dilation_width (input 8) must need a padding of at most 16777216, got",
    ),
    (
        OperationCode.TRANSPOSE_CONV_2D,
        (*conv()[:3], *scalars(0, 0, 0, 2**31 - 1, 1, 1, 0), FALSE),
        "padding_bottom (input 6) must be -16777216 to 16777216, got 2147483647",
    ),
    (
        OperationCode.ROI_ALIGN,
        (
            tensor(1, 4, 4, 1),
            tensor(1, 4),
            ints(0),
            *scalars(2, 2),
            *(Known(OperandCode.FLOAT32, (), (1.0,)) for _ in range(2)),
            *scalars(2**30, 2**30),
            FALSE,
        ),
        "height_samples (input 7) times width_samples must be at most 32768, got [1073741824, 1073741824]",
    ),
    (CONV, (tensor(1, 2, 2, 3), *conv(2, 1, 1, 0)[1:]), "must hold a filter of 3 x 3, got 2 x 2 before padding"),
    (CONV, (tensor(1, 4, 4, 5), *conv(2, 1, 1, 0)[1:]), "filter (input 1) must have depth 5"),
    (CONV, (tensor(1, 4, 0, 3), *conv(2, 1, 1, 0)[1:]), "must have height, width and depth > 0"),
    (CONV, (*conv()[:2], tensor(3), *scalars(2, 1, 1, 0)), "bias (input 2) must have dimensions [2], got [3]"),
    (
        DEPTHWISE,
        (tensor(1, 4, 4, 3), tensor(1, 3, 3, 8), tensor(8), *scalars(2, 1, 1, 2, 0)),
        "depth_multiplier (input 6) times 3 must be the filter's depth 8, got 2",
    ),
    (
        DEPTHWISE,
        (tensor(1, 4, 4, 3), tensor(2, 3, 3, 3), tensor(3), *scalars(2, 1, 1, 1, 0)),
        "filter (input 1) must have first size 1",
    ),
    (OperationCode.AVERAGE_POOL_2D, pool(2, 1, 1, 0, 2, 0), "filter_width (input 4) must be > 0, got 0"),
    (OperationCode.MAX_POOL_2D, pool(2, 0, 0, 0, 1, 1, 2, 2, 0), "filter_width (input 7) must be > paddings 2 and 0"),
    (
        OperationCode.FULLY_CONNECTED,
        (tensor(2, 3), tensor(4, 5), tensor(4), *scalars(0)),
        "input (input 0) must have rank >= 2 and whole rows of 5 elements, got [2, 3]",
    ),
    (OperationCode.RESHAPE, (tensor(2, 3), ints(-1, -1)), "at most one -1, got [-1, -1]"),
    (OperationCode.RESHAPE, (tensor(2, 3), ints(4, -1)), "shape (input 1) must hold 6 elements, got [4, -1]"),
    (OperationCode.SQUEEZE, (tensor(1, 3), ints(1)), "axes (input 1) must name axes of size 1 of [1, 3], got [1]"),
    (OperationCode.SQUEEZE, (tensor(1, 3), ints(2)), "axes (input 1) must be in [-2, 2), got 2"),
    (OperationCode.TRANSPOSE, (tensor(2, 3), ints(0, 0)), "perm (input 1) must be a permutation of 0 to 1, got [0, 0]"),
    (
        OperationCode.CONCATENATION,
        (tensor(2, 3), tensor(3, 2), *scalars(0)),
        "must have dimensions [2, 3] except along axis 0, got [3, 2]",
    ),
    (
        OperationCode.CONCATENATION,
        (tensor(2, 3), tensor(2, 3), *scalars(-1)),
        "axis (input 2) must be in [0, 2), got -1",
    ),
    (OperationCode.SPLIT, (tensor(3, 2), *scalars(0, 1)), None),
    (OperationCode.SPLIT, (tensor(3, 2), *scalars(0, 2)), "num_splits (input 2) must be the number of outputs, 1"),
    (
        OperationCode.STRIDED_SLICE,
        strided(ints(0, 0), ints(1, 1), ints(1, 0), 0, 0, 0),
        "strides (input 3) must not be 0 for axis 1",
    ),
    (
        OperationCode.STRIDED_SLICE,
        strided(ints(0, 0), ints(2, 1), ints(1, 1), 0, 0, 1),
        "shrink_axis_mask (input 6) must drop axes of one element",
    ),
    (
        OperationCode.STRIDED_SLICE,
        strided(ints(0), ints(2, 1), ints(1, 1), 0, 0, 0),
        "begin (input 1) must have 2 elements, got [0]",
    ),
    (OperationCode.SLICE, (tensor(4, 6), ints(0, 3), ints(4, 4)), "size (input 2) must be -1 or in 0..3 for axis 1"),
    (OperationCode.SLICE, (tensor(4, 6), ints(-1, 3), ints(1, 1)), "begin (input 1) must be in 0..4 for axis 0"),
    (
        OperationCode.PAD,
        (tensor(3), Known(INT32, (1, 2), (1, -1))),
        "paddings (input 1) must be >= 0, got [1, -1]",
    ),
    (
        OperationCode.PAD,
        (tensor(3, 3), Known(INT32, (1, 2), (1, 1))),
        "paddings (input 1) must have dimensions [2, 2], got [1, 2]",
    ),
]


@pytest.mark.parametrize(("code", "inputs", "message"), REFUSED)
def test_bad_values_are_refused(code: OperationCode, inputs: tuple[Known, ...], message: str | None) -> None:
    op = OperationView(code, inputs, [Known(inputs[0].type, None)])
    validate(op)
    if message is None:
        assert output_dimensions(op)
        return
    with pytest.raises(BadData) as caught:
        output_dimensions(op)
    assert message in str(caught.value)


def test_bias_must_have_the_scale_of_the_products() -> None:
    bias = Known(INT32, (2,), scale=0.5)
    inputs = (tensor(1, 4, 4, 3, code=QUANT8), tensor(2, 3, 3, 3, code=QUANT8), bias, *scalars(1, 1, 1, 0))
    with pytest.raises(BadData, match=r"bias \(input 2\) must have scale 0.25"):
        output_dimensions(OperationView(CONV, inputs, [tensor(1, 4, 4, 2, code=QUANT8)]))


def test_explicit_and_implicit_padding_are_told_apart_where_both_have_ten_inputs() -> None:
    layout = Known(OperandCode.BOOL, (), (0,))
    explicit = OperationView(CONV, conv(1, 1, 0, 0, 1, 1, 0), [Known(FLOAT, None)])
    implicit = OperationView(CONV, (*conv(2, 1, 1, 0), layout, *scalars(1, 1)), [Known(FLOAT, None)])
    assert output_dimensions(explicit) == ((1, 2, 4, 2),)
    assert output_dimensions(implicit) == ((1, 2, 2, 2),)


def test_one_dilation_alone_is_refused() -> None:
    layout = Known(OperandCode.BOOL, (), (0,))
    with pytest.raises(BadData, match="needs 7 or 8 or 10 or 11 or 13 inputs, got 9"):
        validate(OperationView(CONV, (*conv(2, 1, 1, 0), layout, *scalars(1)), [Known(FLOAT, None)]))


def test_per_channel_filters_name_the_channel_dimension_and_need_hal_1_2() -> None:
    def level(channel_dim: int) -> FeatureLevel:
        weights = Known(
            OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
            (2, 3, 3, 2),
            channel_quant=ChannelQuant((1.0, 2.0), channel_dim),
        )
        inputs = (tensor(1, 4, 4, 2, code=QUANT8), weights, Known(INT32, (2,)), *scalars(1, 1, 1, 0))
        return validate(OperationView(CONV, inputs, [tensor(1, 4, 4, 2, code=QUANT8)]))

    assert level(0) == FeatureLevel.HAL_1_2
    with pytest.raises(BadData, match=r"filter \(input 1\) must have channel dimension 0, got 3"):
        level(3)


def test_sizes_not_known_yet_pass_validation() -> None:
    inputs = (tensor(0, 0, 0, 3), tensor(2, 3, 3, 3), tensor(2), *(Known(OperandCode.INT32, ()) for _ in range(4)))
    assert validate(OperationView(CONV, inputs, [Known(FLOAT, None)])) == FeatureLevel.HAL_1_0

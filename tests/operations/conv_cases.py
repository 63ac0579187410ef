# SPDX-License-Identifier: Apache-2.0
"""Cases of CONV_2D and DEPTHWISE_CONV_2D: a plain loop in float64 for real numbers, bytes worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import ChannelQuant
from tests.operations.cases import ALL, QUANT8, SIGNED, Argument, Case, bias, flag, integer, of, tensor, weights

if TYPE_CHECKING:
    from collections.abc import Sequence

SAME, VALID = 1, 2
BOUNDS = {
    FuseCode.NONE: (-np.inf, np.inf),
    FuseCode.RELU: (0.0, np.inf),
    FuseCode.RELU1: (-1.0, 1.0),
    FuseCode.RELU6: (0.0, 6.0),
}


@dataclass(frozen=True)
class Convolution:
    """What a generated case does; `paddings` are left, right, top, bottom, or a scheme."""

    name: str
    image: tuple[int, int, int, int]
    filter: tuple[int, int, int]
    """depth_out (CONV_2D) or depth multiplier, filter height and width."""
    paddings: int | tuple[int, int, int, int] = VALID
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    activation: FuseCode = FuseCode.NONE
    nchw: bool = False
    depthwise: bool = False


def steps(count: int, factor: int, modulus: int, scale: float = 0.5) -> np.ndarray:
    """Return `count` numbers around zero without much pattern, multiples of `scale`."""
    return ((np.arange(count) * factor) % modulus - modulus // 2) * scale


def same_padding(size: int, filter_size: int, stride: int, dilation: int) -> tuple[int, int]:
    outputs = (size + stride - 1) // stride
    missing = max(0, (outputs - 1) * stride + (filter_size - 1) * dilation + 1 - size)
    return missing // 2, missing - missing // 2


def expected(case: Convolution, image: np.ndarray, kernel: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Convolve [batches, height, width, depth] by the definition, one output at a time."""
    _batches, height, width, depth = image.shape
    filter_height, filter_width = kernel.shape[1:3]
    (stride_y, stride_x), (dilation_y, dilation_x) = case.strides, case.dilations
    if case.paddings == SAME:
        top, bottom = same_padding(height, filter_height, stride_y, dilation_y)
        left, right = same_padding(width, filter_width, stride_x, dilation_x)
    else:
        left, right, top, bottom = (0, 0, 0, 0) if isinstance(case.paddings, int) else case.paddings
    rows = (height + top + bottom - (filter_height - 1) * dilation_y - 1) // stride_y + 1
    columns = (width + left + right - (filter_width - 1) * dilation_x - 1) // stride_x + 1
    result = np.zeros((image.shape[0], rows, columns, len(offsets)))
    for batch, y, x, channel in np.ndindex(*result.shape):
        total = float(offsets[channel])
        for tap_y, tap_x in np.ndindex(filter_height, filter_width):
            row, column = y * stride_y - top + tap_y * dilation_y, x * stride_x - left + tap_x * dilation_x
            if not (0 <= row < height and 0 <= column < width):
                continue
            if case.depthwise:
                source = channel * depth // len(offsets)
                total += image[batch, row, column, source] * kernel[0, tap_y, tap_x, channel]
            else:
                total += float(image[batch, row, column] @ kernel[channel, tap_y, tap_x])
        result[batch, y, x, channel] = total
    return np.clip(result, *BOUNDS[case.activation])


def generated(case: Convolution) -> Case:
    batches, height, width, depth = case.image
    leading, filter_height, filter_width = case.filter
    shape = (1, filter_height, filter_width, depth * leading) if case.depthwise else (*case.filter, depth)
    image = steps(batches * height * width * depth, 7, 11).reshape(case.image)
    kernel = steps(int(np.prod(shape)), 5, 7).reshape(shape)
    offsets = steps(shape[3] if case.depthwise else shape[0], 3, 5, 0.25)
    result = expected(case, image, kernel, offsets)
    if case.nchw:
        image, result = image.transpose(0, 3, 1, 2), result.transpose(0, 3, 1, 2)
    paddings = (case.paddings,) if isinstance(case.paddings, int) else case.paddings
    scalars = [*paddings, case.strides[1], case.strides[0]]
    if case.depthwise:
        scalars.append(leading)
    tail: tuple[Argument, ...] = ()
    if case.nchw or case.dilations != (1, 1):
        tail = (flag(case.nchw),)
    if case.dilations != (1, 1):
        tail += (integer(case.dilations[1]), integer(case.dilations[0]))
    return Case(
        OperationCode.DEPTHWISE_CONV_2D if case.depthwise else OperationCode.CONV_2D,
        case.name,
        (
            tensor(image.shape, image.reshape(-1).tolist()),
            weights(shape, kernel.reshape(-1).tolist()),
            bias(offsets.tolist(), 0.25),
            *(integer(value) for value in (*scalars, case.activation)),
            *tail,
        ),
        (tensor(result.shape, result.reshape(-1).tolist(), scale=1.0),),
        ALL,
    )


def scalars(*values: int) -> tuple[Argument, ...]:
    return tuple(integer(value) for value in values)


def quantized_conv(
    code: OperandCode,
    image: Argument,
    kernel: Argument,
    offsets: Argument,
    result: Argument,
    name: str,
    parameters: Sequence[int],
) -> Case:
    depthwise = len(parameters) == 5
    operation = OperationCode.DEPTHWISE_CONV_2D if depthwise else OperationCode.CONV_2D
    inputs = (image, constant(kernel), constant(offsets), *scalars(*parameters))
    return Case(operation, name, inputs, (result,), (code,), exact=True)


def per_channel_filter(
    dims: tuple[int, int, int, int], values: Sequence[float], scales: tuple[float, ...], channel_dim: int
) -> Argument:
    return Argument(
        dims,
        values,
        OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        0.0,
        0,
        constant=True,
        channel_quant=ChannelQuant(scales, channel_dim),
    )


def constant(argument: Argument) -> Argument:
    return replace(argument, constant=True)


def deep_sum() -> Case:
    """576 products of 255 * 255 leave float32's exact range; the bias brings the sum back to 77."""
    depth, product = 64, 255 * 255
    count = 9 * depth
    return quantized_conv(
        QUANT8,
        of(QUANT8, (1, 3, 3, depth), [255] * count, 1.0, 0),
        of(QUANT8, (1, 3, 3, depth), [255] * count, 1.0, 0),
        of(OperandCode.TENSOR_INT32, (1,), [77 - count * product], 1.0),
        of(QUANT8, (1, 1, 1, 1), [77], 1.0, 0),
        "deep_sum",
        (VALID, 1, 1, FuseCode.NONE),
    )


def shift_up() -> Case:
    """A multiplier of 4 shifts left before the rounding: 10 * 3 * 4 + 1."""
    return quantized_conv(
        SIGNED,
        of(SIGNED, (1, 1, 1, 1), [10], 2.0, 0),
        of(SIGNED, (1, 1, 1, 1), [3], 2.0, 0),
        of(OperandCode.TENSOR_INT32, (1,), [0], 4.0),
        of(SIGNED, (1, 1, 1, 1), [121], 1.0, 1),
        "shift_up",
        (VALID, 1, 1, FuseCode.NONE),
    )


def per_channel() -> Case:
    """Multipliers 2^-14, 1/4 and 2; the shift rounds ties away from zero: 6 / 4 -> 2 and -6 / 4 -> -2."""
    return quantized_conv(
        SIGNED,
        of(SIGNED, (1, 1, 2, 1), [6, -6], 1.0, 0),
        per_channel_filter((3, 1, 1, 1), [100, 1, 1], (2.0**-14, 0.25, 2.0), 0),
        of(OperandCode.TENSOR_INT32, (3,), [2**14, 0, 1]),
        of(SIGNED, (1, 1, 2, 3), [1, 2, 14, 1, -2, -10], 1.0, 0),
        "per_channel",
        (VALID, 1, 1, FuseCode.NONE),
    )


def per_channel_depthwise() -> Case:
    """Sums -20 and -15 with multipliers 1 and 1/2; without a shift ties go up: -15 / 2 -> -7."""
    return quantized_conv(
        QUANT8,
        of(QUANT8, (1, 1, 2, 1), [138, 118], 1.0, 128),
        per_channel_filter((1, 1, 2, 2), [1, 2, 3, 4], (1.0, 0.5), 3),
        of(OperandCode.TENSOR_INT32, (2,), [0, 5]),
        of(QUANT8, (1, 1, 1, 2), [108, 121], 1.0, 128),
        "per_channel",
        (VALID, 1, 1, 2, FuseCode.NONE),
    )


CONVOLUTIONS = (
    Convolution("1x1", (2, 3, 4, 5), (6, 1, 1)),
    Convolution("1x1_strides", (1, 5, 4, 3), (2, 1, 1), strides=(2, 3)),
    Convolution("same_3x3", (1, 5, 6, 3), (4, 3, 3), SAME),
    Convolution("same_strides_relu", (2, 6, 5, 3), (4, 3, 2), SAME, (2, 3), activation=FuseCode.RELU),
    Convolution("valid_relu1", (1, 5, 5, 2), (3, 2, 3), activation=FuseCode.RELU1),
    Convolution("explicit_relu6", (1, 4, 5, 3), (5, 3, 3), (2, 0, 1, 3), (2, 1), activation=FuseCode.RELU6),
    Convolution("padding_beyond_filter", (1, 2, 2, 1), (1, 2, 2), (3, 1, 0, 2)),
    Convolution("dilations", (1, 7, 8, 2), (3, 3, 2), SAME, dilations=(2, 3)),
    Convolution("explicit_dilations_nchw", (1, 7, 6, 2), (3, 2, 3), (1, 0, 0, 1), (2, 1), (3, 2), nchw=True),
    Convolution("nchw_same", (2, 4, 5, 3), (4, 3, 3), SAME, (1, 2), nchw=True),
    Convolution("wide", (1, 4, 4, 40), (40, 3, 3), SAME),
    Convolution("large_image", (1, 45, 47, 3), (2, 2, 3), SAME, activation=FuseCode.RELU6),
    Convolution("same_3x3", (1, 5, 6, 3), (1, 3, 3), SAME, depthwise=True),
    Convolution("large_image", (1, 26, 31, 32), (1, 3, 3), SAME, activation=FuseCode.RELU6, depthwise=True),
    Convolution("multiplier_relu6", (2, 5, 4, 3), (2, 2, 3), strides=(2, 1), activation=FuseCode.RELU6, depthwise=True),
    Convolution(
        "explicit_relu1", (1, 4, 5, 4), (1, 3, 2), (0, 1, 2, 1), (3, 2), (1, 1), FuseCode.RELU1, depthwise=True
    ),
    Convolution("dilations_relu", (1, 7, 8, 2), (3, 3, 2), SAME, (1, 1), (2, 3), FuseCode.RELU, depthwise=True),
    Convolution("nchw", (2, 4, 5, 3), (2, 3, 3), SAME, (2, 1), nchw=True, depthwise=True),
    Convolution("nchw_depth_1", (1, 7, 6, 1), (1, 2, 1), strides=(2, 1), nchw=True, depthwise=True),
    Convolution("strided_dilations", (1, 8, 16, 5), (1, 2, 5), SAME, (3, 2), (3, 2), depthwise=True),
    Convolution("strided_odd_dilations", (2, 6, 19, 3), (2, 2, 4), VALID, (3, 2), (2, 3), depthwise=True),
    Convolution("one_pixel", (1, 1, 1, 17), (1, 3, 3), SAME, depthwise=True),
    Convolution("steps_never_taken", (1, 2, 3, 4), (3, 1, 1), strides=(2**31 - 1, 2**30), dilations=(2**31 - 1, 2**30)),
    Convolution("steps_never_taken", (1, 4, 4, 1), (1, 1, 1), strides=(2**30, 2**31 - 1), depthwise=True),
)

CASES = (
    *(generated(case) for case in CONVOLUTIONS),
    deep_sum(),
    shift_up(),
    per_channel(),
    per_channel_depthwise(),
)

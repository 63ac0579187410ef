# SPDX-License-Identifier: Apache-2.0
"""Cases of GROUPED_CONV_2D: a convolution per group, one output at a time in float64; `litert` has LiteRT's results."""

from __future__ import annotations

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import ChannelQuant
from tests.operations.cases import ALL, INT32, QUANT8, SIGNED, Argument, Case, bias, flag, integer, of, stored, tensor
from tests.operations.cases import weights as constant_tensor
from tests.operations.conv_cases import BOUNDS, SAME, VALID, same_padding, steps

GROUPED = OperationCode.GROUPED_CONV_2D


def generated(
    name: str,
    image_dims: tuple[int, int, int, int],
    filter_dims: tuple[int, int, int, int],
    groups: int,
    strides: tuple[int, int] = (1, 1),
    paddings: int | tuple[int, int, int, int] = VALID,
    activation: FuseCode = FuseCode.NONE,
    nchw: bool = False,
) -> Case:
    """Return a case; paddings are left, right, top, bottom, or a scheme, strides and sizes (height, width)."""
    _batches, height, width, _depth = image_dims
    output_depth, filter_height, filter_width, group_depth = filter_dims
    image = steps(int(np.prod(image_dims)), 7, 11).reshape(image_dims)
    kernel = steps(int(np.prod(filter_dims)), 5, 7).reshape(filter_dims)
    offsets = steps(output_depth, 3, 5, 0.25)
    if paddings == SAME:
        top, bottom = same_padding(height, filter_height, strides[0], 1)
        left, right = same_padding(width, filter_width, strides[1], 1)
    else:
        left, right, top, bottom = (0, 0, 0, 0) if isinstance(paddings, int) else paddings
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right), (0, 0)))
    rows = (height + top + bottom - filter_height) // strides[0] + 1
    columns = (width + left + right - filter_width) // strides[1] + 1
    result = np.zeros((image_dims[0], rows, columns, output_depth))
    for batch, y, x, channel in np.ndindex(*result.shape):
        first = channel // (output_depth // groups) * group_depth
        row, column = y * strides[0], x * strides[1]
        window = padded[batch, row : row + filter_height, column : column + filter_width, first : first + group_depth]
        result[batch, y, x, channel] = offsets[channel] + (window * kernel[channel]).sum()
    result = np.clip(result, *BOUNDS[activation])
    if nchw:
        image, result = image.transpose(0, 3, 1, 2), result.transpose(0, 3, 1, 2)
    scheme = (paddings,) if isinstance(paddings, int) else paddings
    return Case(
        GROUPED,
        name,
        (
            tensor(image.shape, image.reshape(-1).tolist()),
            constant_tensor(filter_dims, kernel.reshape(-1).tolist()),
            bias(offsets.tolist(), 0.25),
            *(integer(value) for value in (*scheme, strides[1], strides[0], groups, activation)),
            flag(nchw),
        ),
        (tensor(result.shape, result.reshape(-1).tolist(), scale=1.0),),
        ALL,
    )


def per_channel(code: OperandCode, zero: int) -> Case:
    """Sums 8 and -18 of one group each, times 1/4 and 1/2."""
    kernel = Argument(
        (2, 1, 1, 2),
        [1, 2, -3, 4],
        OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        0.0,
        0,
        constant=True,
        channel_quant=ChannelQuant((0.25, 0.5), 0),
    )
    offsets = Argument((2,), [0, 1], INT32, 0.0, 0, constant=True)
    return Case(
        GROUPED,
        f"per_channel_{code.name.lower()}",
        (
            of(code, (1, 1, 1, 4), [zero + x for x in (2, 3, 5, -1)], 1.0, zero),
            kernel,
            offsets,
            *(integer(value) for value in (VALID, 1, 1, 2, FuseCode.NONE)),
            flag(False),
        ),
        (of(code, (1, 1, 1, 2), [zero + 2, zero - 9], 1.0, zero),),
        (code,),
        exact=True,
    )


CASES = (
    generated("valid", (2, 3, 4, 4), (6, 2, 2, 2), 2),
    generated("same_strides_relu", (1, 5, 6, 6), (3, 3, 2, 2), 3, (2, 1), SAME, FuseCode.RELU),
    generated("explicit_relu6", (1, 4, 5, 4), (4, 3, 3, 1), 4, (1, 2), (2, 0, 1, 2), FuseCode.RELU6),
    generated("nchw_relu1", (2, 4, 3, 4), (2, 2, 3, 2), 2, (1, 1), SAME, FuseCode.RELU1, nchw=True),
    generated("one_group", (1, 3, 3, 2), (3, 1, 1, 2), 1),
    generated("many_small_groups", (1, 4, 6, 32), (32, 2, 3, 2), 16, (1, 1), SAME, FuseCode.RELU),
    generated("groups_of_four_strides", (2, 5, 3, 16), (16, 2, 1, 4), 4, (2, 1)),
    per_channel(SIGNED, 0),
    per_channel(QUANT8, 128),
    Case(
        GROUPED,
        "litert",
        (
            stored(
                (1, 4, 3, 4),
                "9c76395b6896bb4761084254cec1c54136676dc1dd6837e389eb634f0fbc7e407223f8704c9acbefae256bb6d279da21",
                0.031,
                117,
            ),
            stored(
                (6, 2, 2, 2),
                "57f932b2362028e7fa1ab517d1540cf0eb0863eb599cde117d91ec75d6906ebcd8ad9eff9a28ebd05e69aac8b4e412fd",
                0.017,
                128,
            ),
            of(INT32, (6,), [-224, -4212, -5110, -848, -3568, 7970], 0.031 * 0.017),
            *(integer(value) for value in (SAME, 2, 1, 2, FuseCode.NONE)),
            flag(False),
        ),
        (
            stored(
                (1, 4, 2, 6),
                "52715f8a618e3d81685b398b80813c527a636981707f65827c027b8240a8417c67728a66606232638a735e736e606873",
                0.25,
                101,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
)

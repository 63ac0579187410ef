# SPDX-License-Identifier: Apache-2.0
"""Cases of TRANSPOSE_CONV_2D: every pixel spread by a plain loop in float64; `litert_*` has LiteRT's results."""

from __future__ import annotations

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import ChannelQuant
from tests.operations.cases import (
    ALL,
    INT32,
    QUANT8,
    SIGNED,
    Argument,
    Case,
    bias,
    flag,
    integer,
    ints,
    of,
    stored,
    tensor,
)
from tests.operations.cases import weights as constant_tensor
from tests.operations.conv_cases import BOUNDS, SAME, VALID, steps

TRANSPOSE_CONV = OperationCode.TRANSPOSE_CONV_2D


def generated(
    name: str,
    image_dims: tuple[int, int, int, int],
    filter_dims: tuple[int, int, int, int],
    strides: tuple[int, int],
    paddings: tuple[int, int, int, int],
    implicit: tuple[int, int, int] | None = None,
    activation: FuseCode = FuseCode.NONE,
    nchw: bool = False,
) -> Case:
    """Return a case; paddings are left, right, top, bottom, `implicit` the scheme and output size that make them."""
    batches, height, width, _depth = image_dims
    output_depth, filter_height, filter_width, _filter_depth = filter_dims
    left, right, top, bottom = paddings
    image = steps(int(np.prod(image_dims)), 7, 11).reshape(image_dims)
    kernel = steps(int(np.prod(filter_dims)), 5, 7).reshape(filter_dims)
    offsets = steps(output_depth, 3, 5, 0.25)
    rows = (height - 1) * strides[0] + filter_height - top - bottom
    columns = (width - 1) * strides[1] + filter_width - left - right
    result = np.zeros((batches, rows, columns, output_depth)) + offsets
    for batch, y, x, tap_y, tap_x in np.ndindex(batches, height, width, filter_height, filter_width):
        row, column = y * strides[0] - top + tap_y, x * strides[1] - left + tap_x
        if 0 <= row < rows and 0 <= column < columns:
            result[batch, row, column] += kernel[:, tap_y, tap_x] @ image[batch, y, x]
    result = np.clip(result, *BOUNDS[activation])
    if nchw:
        image, result = image.transpose(0, 3, 1, 2), result.transpose(0, 3, 1, 2)
    geometry: tuple[Argument, ...] = tuple(integer(value) for value in paddings)
    if implicit is not None:
        scheme, wanted_rows, wanted_columns = implicit
        shape = [batches, wanted_rows, wanted_columns, output_depth]
        geometry = (ints([shape[i] for i in (0, 3, 1, 2)] if nchw else shape), integer(scheme))
    return Case(
        TRANSPOSE_CONV,
        name,
        (
            tensor(image.shape, image.reshape(-1).tolist()),
            constant_tensor(filter_dims, kernel.reshape(-1).tolist()),
            bias(offsets.tolist(), 0.25),
            *geometry,
            *(integer(value) for value in (strides[1], strides[0], activation)),
            flag(nchw),
        ),
        (tensor(result.shape, result.reshape(-1).tolist(), scale=1.0),),
        ALL,
    )


def litert(name: str, scheme: int, strides: tuple[int, int], dims: tuple[int, int, int, int], result: str) -> Case:
    return Case(
        TRANSPOSE_CONV,
        f"litert_{name}",
        (
            stored(
                (1, 3, 4, 3),
                "acec9b19623fb82c9ad92ee9b40b8855b2317d787febf111c92b287cf98696be7a70b224",
                0.031,
                117,
            ),
            stored(
                (2, 3, 2, 3),
                "e15a96fbc3c0d01d70ce424fe0c840037bdf8b297b749aa93e827d2a7f233248f80ddb37",
                0.017,
                140,
            ),
            of(INT32, (2,), [8059, -6659], 0.031 * 0.017),
            ints(dims),
            *(integer(value) for value in (scheme, strides[1], strides[0], FuseCode.NONE)),
            flag(False),
        ),
        (stored(dims, result, 0.1, 101),),
        (QUANT8, SIGNED),
        exact=True,
    )


def per_channel() -> Case:
    """One pixel of 6 spread over two: 6 times 1 and 2 by 1/4, 6 times 3 and -1 by 1/2, ties away from zero."""
    kernel = Argument(
        (2, 1, 2, 1),
        [1, 2, 3, -1],
        OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        0.0,
        0,
        constant=True,
        channel_quant=ChannelQuant((0.25, 0.5), 0),
    )
    return Case(
        TRANSPOSE_CONV,
        "per_channel",
        (
            of(SIGNED, (1, 1, 1, 1), [6], 1.0, 0),
            kernel,
            Argument((2,), [0, 0], INT32, 0.0, 0, constant=True),
            *(integer(value) for value in (0, 0, 0, 0, 1, 1, FuseCode.NONE)),
            flag(False),
        ),
        (of(SIGNED, (1, 1, 2, 2), [2, 9, 3, -3], 1.0, 0),),
        (SIGNED,),
        exact=True,
    )


CASES = (
    generated("explicit", (2, 2, 3, 2), (3, 3, 2, 2), (2, 1), (0, 1, 1, 0)),
    generated("overlapping_nchw", (1, 3, 3, 2), (2, 3, 3, 2), (1, 1), (1, 1, 1, 1), nchw=True),
    generated("gaps_relu", (1, 3, 2, 1), (2, 1, 2, 1), (3, 4), (0, 0, 0, 0), activation=FuseCode.RELU),
    generated("far_apart", (1, 2, 2, 3), (5, 1, 1, 3), (5, 6), (0, 0, 0, 0)),
    # SAME: 2 paddings at height 6 = 3 * 2, (3 - 1) * 2 + 3 - 6 = 1: none above, one below.
    generated("same", (1, 3, 3, 2), (2, 3, 3, 2), (2, 2), (0, 1, 0, 1), (SAME, 6, 6), FuseCode.RELU6),
    generated("same_odd", (2, 3, 2, 1), (1, 4, 3, 1), (2, 3), (0, 1, 1, 2), (SAME, 5, 5)),
    # The filter is smaller than the stride, so that the tail's padding is negative.
    generated("same_sparse", (1, 2, 2, 2), (1, 1, 2, 2), (3, 4), (0, -2, 0, -2), (SAME, 6, 8)),
    # The same given as numbers; a tail may lie beyond what the filter reaches.
    generated("negative_tails", (1, 2, 2, 2), (1, 1, 2, 2), (3, 4), (0, -2, 0, -2)),
    generated("negative_tails_nchw", (2, 3, 2, 3), (4, 3, 2, 3), (2, 3), (1, -3, 2, -5), nchw=True),
    generated("same_nchw", (1, 2, 3, 2), (3, 3, 2, 2), (2, 2), (0, 0, 0, 1), (SAME, 4, 6), FuseCode.RELU1, nchw=True),
    generated("valid", (1, 2, 2, 3), (2, 3, 2, 3), (1, 2), (0, 0, 0, 0), (VALID, 4, 4)),
    # Phases whose pictures are smaller than the input, of whole tiles or of one pixel.
    generated("cropped", (1, 7, 12, 4), (16, 2, 2, 4), (2, 2), (0, 1, 0, 0)),
    generated("cropped_to_pixels", (1, 2, 2, 20), (5, 2, 2, 20), (2, 2), (0, 1, 0, 1)),
    per_channel(),
    litert(
        "same",
        SAME,
        (2, 1),
        (1, 6, 4, 2),
        "8b00b6597966f15458225a33c576f400f7483e2ba39b7400e12ca42d82707e09b7827c00af75ff00e429953b391a632e",
    ),
    litert(
        "valid",
        VALID,
        (1, 3),
        (1, 5, 11, 2),
        "8b00dd4a8f42685145448f42c364ac3a8f42d55cd542915773008f426053758f8f42d025c0118f42db00f600ff2aad008f42321e"
        "decd8f4283269e008f4251269200d73cc7008f4263094d798f4270317b218f42f900047fbc09380d8f42b619866d8f42b31b7348"
        "8f42c1006a83",
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""Cases of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: windows spelled out by a plain loop, and rounding by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperationCode
from tests.operations.cases import ALL, FLOATS, QUANT8, SIGNED, Argument, Case, flag, integer, of, tensor
from tests.operations.conv_cases import BOUNDS, SAME, VALID, same_padding, steps

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

AVERAGE, MAXIMUM, ROOT = OperationCode.AVERAGE_POOL_2D, OperationCode.MAX_POOL_2D, OperationCode.L2_POOL_2D


def pool(
    operation: OperationCode,
    name: str,
    dims: tuple[int, int, int, int],
    filter_size: tuple[int, int],
    strides: tuple[int, int],
    paddings: int | tuple[int, int, int, int],
    activation: FuseCode = FuseCode.NONE,
    nchw: bool = False,
) -> Case:
    """Return a case; sizes are (height, width), paddings left, right, top, bottom or a scheme."""
    batches, height, width, depth = dims
    image = steps(batches * height * width * depth, 7, 19).reshape(dims)
    if paddings == SAME:
        top, bottom = same_padding(height, filter_size[0], strides[0], 1)
        left, right = same_padding(width, filter_size[1], strides[1], 1)
    else:
        left, right, top, bottom = (0, 0, 0, 0) if isinstance(paddings, int) else paddings
    rows = (height + top + bottom - filter_size[0]) // strides[0] + 1
    columns = (width + left + right - filter_size[1]) // strides[1] + 1
    result = np.zeros((batches, rows, columns, depth))
    for y, x in np.ndindex(rows, columns):
        first_row, first_column = y * strides[0] - top, x * strides[1] - left
        window = image[
            :,
            max(first_row, 0) : first_row + filter_size[0],
            max(first_column, 0) : first_column + filter_size[1],
        ]
        if operation == ROOT:
            result[:, y, x] = np.sqrt(np.square(window).mean(axis=(1, 2)))
        else:
            result[:, y, x] = window.mean(axis=(1, 2)) if operation == AVERAGE else window.max(axis=(1, 2))
    result = np.clip(result, *BOUNDS[activation])
    if nchw:
        image, result = image.transpose(0, 3, 1, 2), result.transpose(0, 3, 1, 2)
    scheme = (paddings,) if isinstance(paddings, int) else paddings
    numbers = (*scheme, strides[1], strides[0], filter_size[1], filter_size[0], activation)
    layout = (flag(True),) if nchw else ()
    return Case(
        operation,
        name,
        (tensor(image.shape, image.reshape(-1).tolist()), *(integer(number) for number in numbers), *layout),
        (tensor(result.shape, result.reshape(-1).tolist()),),
        FLOATS if operation == ROOT else ALL,
    )


def rounding(name: str, dims: Dimensions, source: Argument, result: Argument) -> Case:
    """Average everything: the mean of each channel, exactly."""
    assert result.type is not None
    numbers = (VALID, 1, 1, dims[2], dims[1], FuseCode.NONE)
    inputs = (source, *(integer(number) for number in numbers))
    return Case(AVERAGE, name, inputs, (result,), (result.type,), exact=True)


CASES = (
    *(
        case
        for operation in (AVERAGE, MAXIMUM, ROOT)
        for case in (
            pool(operation, "valid", (2, 5, 6, 3), (2, 3), (1, 2), VALID),
            pool(operation, "same_relu", (1, 5, 6, 3), (3, 3), (2, 2), SAME, FuseCode.RELU),
            pool(operation, "explicit_relu1", (1, 4, 5, 2), (3, 4), (2, 1), (3, 0, 1, 2), FuseCode.RELU1),
            pool(operation, "nchw_relu6", (2, 4, 5, 3), (2, 2), (2, 2), SAME, FuseCode.RELU6, nchw=True),
            pool(operation, "everything", (1, 7, 5, 9), (7, 5), (1, 1), VALID),
            pool(operation, "one_pixel", (1, 3, 3, 2), (1, 1), (2, 2), VALID),
        )
    ),
    # Means 0.5, 1.25, 254.75 and 2.5 of unsigned codes.
    rounding(
        "rounds_up",
        (1, 2, 2, 4),
        of(QUANT8, (1, 2, 2, 4), [0, 1, 255, 2, 1, 1, 255, 3, 0, 1, 255, 2, 1, 2, 254, 3], 0.5, 3),
        of(QUANT8, (1, 1, 1, 4), [1, 1, 255, 3], 0.5, 3),
    ),
    # Means -0.5, -1.25, 0.5 and -127.5 of signed codes: ties go away from zero.
    rounding(
        "rounds_away_from_zero",
        (1, 2, 2, 4),
        of(SIGNED, (1, 2, 2, 4), [0, -1, 0, -128, -1, -1, 1, -127, 0, -1, 0, -128, -1, -2, 1, -127], 0.5, 3),
        of(SIGNED, (1, 1, 1, 4), [-1, -1, 1, -128], 0.5, 3),
    ),
)

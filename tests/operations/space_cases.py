# SPDX-License-Identifier: Apache-2.0
"""Cases of SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND: pixel by pixel from the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nn_runtime.codes import OperationCode
from tests.operations.cases import Argument, Case, flag, integer, ints, tensor


def steps(*dims: int) -> np.ndarray:
    return (np.arange(np.prod(dims)) * 0.5).reshape(dims)


def case(
    code: OperationCode, name: str, image: np.ndarray, parameters: tuple[Argument, ...], result: np.ndarray, nchw: bool
) -> Case:
    layout = (flag(True),) if nchw else ()
    if nchw:
        image, result = image.transpose(0, 3, 1, 2), result.transpose(0, 3, 1, 2)
    given = tensor(image.shape, image.reshape(-1).tolist(), 0.5, 20)
    return Case(
        code, name, (given, *parameters, *layout), (tensor(result.shape, result.reshape(-1).tolist(), 0.5, 20),)
    )


def depth_cases(name: str, dims: tuple[int, int, int, int], block: int, nchw: bool = False) -> tuple[Case, Case]:
    """Return SPACE_TO_DEPTH and its inverse."""
    batches, height, width, depth = dims
    image, stacked = steps(*dims), np.zeros((batches, height // block, width // block, depth * block * block))
    for y, x in np.ndindex(height, width):
        first = (y % block * block + x % block) * depth
        stacked[:, y // block, x // block, first : first + depth] = image[:, y, x]
    size = (integer(block),)
    return (
        case(OperationCode.SPACE_TO_DEPTH, name, image, size, stacked, nchw),
        case(OperationCode.DEPTH_TO_SPACE, name, stacked, size, image, nchw),
    )


def batch_cases(
    name: str,
    dims: tuple[int, int, int, int],
    block: tuple[int, int],
    paddings: tuple[int, int, int, int] = (0, 0, 0, 0),
    nchw: bool = False,
) -> tuple[Case, ...]:
    """Return SPACE_TO_BATCH_ND, and its inverse where nothing is padded; paddings are top, bottom, left, right."""
    image = steps(*dims)
    top, bottom, left, right = paddings
    batches, height, width, depth = dims[0], dims[1] + top + bottom, dims[2] + left + right, dims[3]
    stacked = np.zeros((batches * block[0] * block[1], height // block[0], width // block[1], depth))
    for batch, y, x in np.ndindex(*dims[:3]):
        row, column = y + top, x + left
        place = row % block[0] * block[1] + column % block[1]
        stacked[place * batches + batch, row // block[0], column // block[1]] = image[batch, y, x]
    shape = ints(block)
    forth = case(OperationCode.SPACE_TO_BATCH_ND, name, image, (shape, ints(paddings, (2, 2))), stacked, nchw)
    back = case(OperationCode.BATCH_TO_SPACE_ND, name, stacked, (shape,), image, nchw)
    return (forth,) if any(paddings) else (forth, back)


def at_run_time(given: Case) -> Case:
    """Return a case whose tensor parameters are inputs of the model."""
    image, *parameters = given.inputs
    return replace(
        given,
        name=f"{given.name}_at_run_time",
        inputs=(image, *(replace(item, constant=not item.dimensions) for item in parameters)),
    )


CASES = (
    *depth_cases("nhwc", (2, 4, 6, 3), 2),
    *depth_cases("nchw", (1, 3, 6, 2), 3, nchw=True),
    *depth_cases("block_of_one", (1, 2, 2, 1), 1),
    *batch_cases("nhwc", (2, 4, 6, 2), (2, 3)),
    *batch_cases("nchw", (1, 4, 2, 3), (4, 1), nchw=True),
    *batch_cases("padded", (2, 3, 4, 2), (2, 3), (1, 0, 2, 3)),
    *batch_cases("padded_nchw", (1, 2, 2, 3), (2, 2), (0, 2, 1, 1), nchw=True),
    *(at_run_time(item) for item in batch_cases("nhwc", (1, 2, 4, 1), (2, 2))),
)

# SPDX-License-Identifier: Apache-2.0
"""Rearrangements by strided copies: space, depth and batch, TILE, CHANNEL_SHUFFLE, PACK, MIRROR_PAD, REVERSE, FILL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import (
    ALL,
    BOOL8,
    FLOAT16,
    FLOAT32,
    INT32,
    QUANT8,
    Value,
    check,
    constant,
    nothing,
    random_tensor,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

ANY = [*ALL, INT32]


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 3, 5, 7, 2), (1, 2, 2, 17, 3), (3, 1, 4, 1, 4)], ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_space_and_depth(
    opencl_device: Device, data_type: OperandCode, sizes: tuple[int, int, int, int, int], nchw: bool
) -> None:
    batches, height, width, depth, block = sizes
    fine = image(data_type, (batches, height * block, width * block, depth), nchw)
    check(opencl_device, OperationCode.SPACE_TO_DEPTH, [fine, block, nchw], fine)
    coarse = image(data_type, (batches, height, width, depth * block * block), nchw)
    check(opencl_device, OperationCode.DEPTH_TO_SPACE, [coarse, block, nchw], coarse)


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("paddings", [((0, 0), (0, 0)), ((1, 2), (0, 1)), ((3, 0), (2, 2))], ids=str)
@pytest.mark.parametrize("block", [(1, 1), (2, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_space_and_batch(
    opencl_device: Device,
    data_type: OperandCode,
    block: tuple[int, int],
    paddings: tuple[tuple[int, int], tuple[int, int]],
    nchw: bool,
) -> None:
    height, width = (-sum(padding) % size + 2 * size for padding, size in zip(paddings, block, strict=True))
    fine = image(data_type, (2, height, width, 17), nchw)
    parameters = constant(block), constant(paddings)
    check(opencl_device, OperationCode.SPACE_TO_BATCH_ND, [fine, *parameters, nchw], fine)
    coarse = image(data_type, (2 * block[0] * block[1], 3, 5, 7), nchw)
    check(opencl_device, OperationCode.BATCH_TO_SPACE_ND, [coarse, parameters[0], nchw], coarse)


def image(data_type: OperandCode, dims: tuple[int, int, int, int], nchw: bool) -> Value:
    batches, height, width, depth = dims
    return random_tensor(data_type, (batches, depth, height, width) if nchw else dims)


@pytest.mark.parametrize(
    ("dims", "multiples"),
    [
        ((1,), [1]),
        ((65,), [3]),
        ((3, 5), [2, 2]),
        ((2, 1, 3, 16), [1, 4, 2, 3]),
        ((2, 3, 2, 3, 2, 3), [2, 1, 2, 2, 1, 2]),
        ((2, 3, 2, 2, 2, 3), [2, 2, 2, 2, 2, 2]),
    ],
    ids=str,
)
@pytest.mark.parametrize("data_type", ANY, ids=lambda code: code.name)
def test_tile(opencl_device: Device, data_type: OperandCode, dims: Dimensions, multiples: list[int]) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.TILE, [source, constant(multiples)], source)


@pytest.mark.parametrize(
    ("dims", "groups", "axis"), [((6,), 3, 0), ((2, 3, 40), 5, -1), ((4, 5, 6, 7), 2, 2), ((12, 65), 4, 0)], ids=str
)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_channel_shuffle(
    opencl_device: Device, data_type: OperandCode, dims: Dimensions, groups: int, axis: int
) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.CHANNEL_SHUFFLE, [source, groups, axis], source)


@pytest.mark.parametrize(("dims", "axis"), [((1,), 0), ((5, 7), 2), ((3, 4, 17), 1), ((2, 2, 2, 2, 65), 5)], ids=str)
@pytest.mark.parametrize("data_type", ANY, ids=lambda code: code.name)
def test_pack(opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int) -> None:
    sources = [random_tensor(data_type, dims, seed) for seed in (1, 1, 1)]
    check(opencl_device, OperationCode.PACK, [axis, *sources], sources[0])


@pytest.mark.parametrize("mode", [0, 1], ids=["reflect", "symmetric"])
@pytest.mark.parametrize(
    ("dims", "paddings"),
    [
        ((4,), [(0, 0)]),
        ((5,), [(4, 3)]),
        ((3, 4), [(2, 1), (0, 3)]),
        ((2, 5, 6, 3), [(0, 0), (2, 2), (3, 1), (0, 0)]),
        ((3, 3, 3, 17), [(2, 2), (1, 2), (2, 1), (16, 15)]),
        ((2, 3, 2, 3, 2), [(1, 1), (1, 2), (1, 0), (2, 2), (1, 1)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("data_type", ANY, ids=lambda code: code.name)
def test_mirror_pad(
    opencl_device: Device, data_type: OperandCode, dims: Dimensions, paddings: list[tuple[int, int]], mode: int
) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.MIRROR_PAD, [source, constant(paddings), mode], source)


@pytest.mark.parametrize(("dims", "axis"), [((1,), 0), ((65,), 0), ((3, 17), 0), ((3, 17), 1), ((2,) * 8, 5)], ids=str)
@pytest.mark.parametrize("data_type", ANY, ids=lambda code: code.name)
def test_reverse(opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.REVERSE, [source, constant([axis])], source)


@pytest.mark.parametrize("dims", [[1], [65], [3, 5, 7], [100, 1000]], ids=str)
def test_fill(opencl_device: Device, dims: list[int]) -> None:
    for code, scalar, dtype in ((FLOAT32, OperandCode.FLOAT32, np.float32), (FLOAT16, OperandCode.FLOAT16, np.float16)):
        check(opencl_device, OperationCode.FILL, [constant(dims), Value(scalar, np.array(-1.3, dtype))], nothing(code))
    check(opencl_device, OperationCode.FILL, [constant(dims), -7], nothing(INT32))


def test_rank(opencl_device: Device) -> None:
    for code in (FLOAT32, FLOAT16, QUANT8, BOOL8, INT32):
        source = random_tensor(code, (2, 3, 4))
        check(opencl_device, OperationCode.RANK, [source], nothing(OperandCode.INT32))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_expand_dims(opencl_device: Device, axis: int) -> None:
    source = random_tensor(QUANT8, (3, 5))
    check(opencl_device, OperationCode.EXPAND_DIMS, [source, axis], source)

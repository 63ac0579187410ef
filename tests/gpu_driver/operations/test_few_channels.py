# SPDX-License-Identifier: Apache-2.0
"""conv_2d_few_channels.cl on the devices at hand, which are said to be GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.operations.compare import (
    ALL,
    FLOAT16,
    FLOAT32,
    INT32,
    QUANT8,
    SIGNED,
    Value,
    execute,
    like,
    random_tensor,
)
from tests.gpu_driver.operations.products import Sizes, check_by, geometry, image_of, operands

if TYPE_CHECKING:
    from nn_runtime.device import Device

FEW_CHANNELS = ("conv_2d_few_channels.cl", "conv_2d_few_channels")
SIZES = {
    "aligned": Sizes((1, 96, 128, 3), (3, 3), 32, stride=(2, 2), padding=(0, 1, 0, 1)),
    "padded": Sizes((1, 47, 61, 3), (3, 3), 24, padding=(1, 1, 1, 1)),
    "batches": Sizes((3, 35, 31, 3), (5, 3), 72, padding=(1, 1, 2, 2)),
    "of_one_tap": Sizes((2, 40, 44, 4), (1, 1), 7),
    "one_channel": Sizes((1, 64, 63, 1), (5, 5), 12, padding=(2, 2, 2, 2)),
    "large_window": Sizes((1, 99, 98, 3), (7, 7), 33, stride=(2, 2), padding=(3, 3, 3, 3)),
    "dilated": Sizes((1, 52, 60, 2), (3, 2), 20, dilation=(2, 3), padding=(2, 1, 0, 3)),
    "wide_window": Sizes((2, 38, 37, 4), (7, 7), 9, dilation=(1, 2), padding=(6, 6, 3, 3)),
    "one_line": Sizes((1, 1, 4000, 1), (1, 7), 16, padding=(3, 3, 0, 0)),
    "patches": Sizes((1, 260, 200, 3), (4, 4), 40, stride=(4, 4)),
    "gaps": Sizes((1, 130, 140, 3), (1, 1), 8, stride=(2, 3)),
}
QUICK = ("aligned", "padded")
"""What the quick suite runs in every type, the rest in one each: PoCL takes seconds to compile them."""

each_type = pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@each_type
@pytest.mark.parametrize("name", SIZES)
def test_convolutions(as_gpu: Device, name: str, data_type: OperandCode, per_channel: bool, is_long: bool) -> None:
    if per_channel and data_type in (FLOAT32, FLOAT16):
        pytest.skip("only 8-bit filters have scales per channel")
    at = list(SIZES).index(name)
    if not is_long and name not in QUICK and (per_channel or data_type != ALL[at % len(ALL)]):
        pytest.skip("compiles for seconds: --long")
    sizes = SIZES[name]
    depth = sizes.image[3]
    inputs, output = operands(
        image_of(data_type, sizes, False), (sizes.depth, *sizes.filter, depth), 0, per_channel, at % 2 == 0, depth
    )
    check_by(FEW_CHANNELS, as_gpu, OperationCode.CONV_2D, [*inputs, *geometry(sizes, False)], output, 8)


@pytest.mark.parametrize("bias", [3000, 1 << 30], ids=["small_sums", "large_sums"])
@pytest.mark.parametrize("activation", [FuseCode.NONE, FuseCode.RELU], ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_roundings(as_gpu: Device, data_type: OperandCode, activation: FuseCode, bias: int) -> None:
    """Each way of rounding: results of both signs, and sums with which the rounding cannot be added."""
    sizes = Sizes((1, 48, 64, 3), (3, 3), 8, padding=(1, 1, 1, 1))
    inputs, output = operands(image_of(data_type, sizes, False), (8, 3, 3, 3), 0, False, True, 3)
    offsets = np.linspace(-bias, bias, 8).astype(np.int32)
    inputs[2] = replace(inputs[2], data=offsets)
    output = like(output, scale=output.scale * max(1, bias >> 14))
    scalars = [*sizes.padding, 1, 1, int(activation), False, 1, 1]
    check_by(FEW_CHANNELS, as_gpu, OperationCode.CONV_2D, [*inputs, *scalars], output)


@pytest.mark.parametrize("activation", [FuseCode.NONE, FuseCode.RELU], ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", [FLOAT32, QUANT8, SIGNED], ids=lambda code: code.name)
def test_fully_connected_rounds_once(as_gpu: Device, data_type: OperandCode, activation: FuseCode) -> None:
    source = random_tensor(data_type, (2100, 3), 1, spread=1)
    inputs, output = operands(source, (10, 3), 0, False, True, 3)
    check_by(FEW_CHANNELS, as_gpu, OperationCode.FULLY_CONNECTED, [*inputs, int(activation)], output, 4)


@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_extreme_sums_are_exact(as_gpu: Device, data_type: OperandCode) -> None:
    """All of 256 products are 255 * 255, of both signs, nearly as many as a float can count."""
    info = np.iinfo(np.uint8 if data_type == QUANT8 else np.int8)
    low, high = int(info.min), int(info.max)
    source = Value(data_type, np.full((1, 56, 56, 4), high, info.dtype), 1.0, low)
    weights = Value(data_type, np.full((5, 8, 8, 4), low, info.dtype), 1.0, high, constant=True)
    weights.data[1::2, ::3] = high
    bias = Value(INT32, np.arange(5, dtype=np.int32) * 40001 + 16_000_000, 1.0, constant=True)
    output = like(source, scale=150_000.0)
    scalars = geometry(Sizes((1, 56, 56, 4), (8, 8), 5), False)
    check_by(FEW_CHANNELS, as_gpu, OperationCode.CONV_2D, [source, weights, bias, *scalars], output)


def test_numbers_that_are_none_stay(as_gpu: Device) -> None:
    """An image of one pixel that is no number spoils what its windows see, and one that is infinite is cut off."""
    sizes = Sizes((1, 48, 64, 1), (3, 3), 8, padding=(1, 1, 1, 1))
    image = np.zeros(sizes.image, np.float32)
    image[0, 10, 20], image[0, 30, 40] = np.nan, np.inf
    weights = Value(FLOAT32, np.ones((8, 3, 3, 1), np.float32), constant=True)
    source, bias = Value(FLOAT32, image), Value(FLOAT32, np.full(8, -1, np.float32), constant=True)
    inputs = [source, weights, bias, *geometry(sizes, False)]
    wanted = np.zeros((1, 48, 64, 8), np.float32)
    wanted[0, 9:12, 19:22], wanted[0, 29:32, 39:42] = np.nan, 6
    got = execute(as_gpu, OperationCode.CONV_2D, inputs, like(source), wanted.shape)
    np.testing.assert_array_equal(got, wanted)

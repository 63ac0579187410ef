# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of many sizes, their operands, and a check of which kernel gave a result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.driver import Device as OpenClDevice
from nn_runtime.codes import DeviceTypeCode, FuseCode, OperandCode
from nn_runtime.operand import ChannelQuant
from tests.gpu_driver.operations.compare import INT32, Scalar, Value, check, like, random_tensor
from tests.platforms.launches import Launches, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.codes import OperationCode
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL


@dataclass(frozen=True)
class Sizes:
    """Image [batches, height, width, depth]; (height, width) of the rest; padding left, right, top, bottom."""

    image: tuple[int, int, int, int]
    filter: tuple[int, int]
    depth: int
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


CONVOLUTIONS = [
    Sizes((1, 1, 1, 1), (1, 1), 1),
    Sizes((1, 1, 1, 100), (1, 1), 33),
    Sizes((1, 8, 8, 16), (1, 1), 64),
    Sizes((1, 5, 13, 24), (1, 1), 65, stride=(2, 1)),
    Sizes((2, 9, 7, 3), (3, 3), 31, stride=(2, 2), padding=(1, 1, 1, 1)),
    Sizes((1, 9, 8, 8), (3, 2), 17, dilation=(2, 3), padding=(2, 1, 0, 3)),
    Sizes((2, 6, 6, 20), (5, 4), 36, stride=(1, 3), padding=(4, 4, 4, 4)),
    Sizes((1, 12, 11, 32), (3, 3), 12, padding=(1, 1, 1, 1)),
]
PRODUCTS = [
    (1, 1, 1),
    (5, 16, 32),
    (31, 15, 33),
    (33, 17, 31),
    (64, 64, 64),
    (65, 257, 63),
    (129, 40, 127),
    (7, 2100, 9),
]


def of_type_gpu(device: Device, features: tuple[str, ...] = ()) -> OpenClDevice:
    """Return a device of this driver with a profile that says it is a GPU, with these features and no other."""
    hal = device.hal
    if not isinstance(hal, OpenClDevice):
        raise TypeError(f"{hal} is not of this driver")
    return OpenClDevice(replace(hal._found, type=DeviceTypeCode.GPU, features=features), 0)


def check_by(
    kernel: tuple[str, str], device: Device, code: OperationCode, inputs: Sequence[Value | Scalar], output: Value,
    tolerance_of: float = 1.0,
) -> None:  # fmt: skip
    """Compare with the CPU driver's function, and look which kernel gave it."""
    launches = Launches()
    with recorded(launches):
        check(device, code, inputs, output, tolerance_of=tolerance_of)
    assert launches.kernels == {kernel}


def image_of(data_type: OperandCode, sizes: Sizes, nchw: bool) -> Value:
    batches, height, width, depth = sizes.image
    return random_tensor(data_type, (batches, depth, height, width) if nchw else sizes.image, 1, spread=1)


def operands(
    source: Value, dims: Dimensions, channel_dim: int, per_channel: bool, held: bool, depth: int
) -> tuple[list[Value], Value]:
    """Return input, filter and bias, the last two the model's where `held`, and an output for sums of `depth` terms."""
    rng = np.random.default_rng(5)
    count = dims[channel_dim]
    weights = replace(random_tensor(OperandCode(source.type), dims, 2, scale=0.02, spread=0.5), constant=held)
    if not source.scale:
        return [source, weights, replace(random_tensor(OperandCode(source.type), (count,), 3), constant=held)], source
    if per_channel:
        scales = tuple(float(scale) for scale in rng.uniform(0.001, 0.05, count))
        data = rng.integers(-127, 128, dims).astype(np.int8)
        weights = Value(PER_CHANNEL, data, channel_quant=ChannelQuant(scales, channel_dim), constant=held)
    bias_data = rng.integers(-3000, 3000, count).astype(np.int32)
    bias = Value(INT32, bias_data, 0.0 if per_channel else source.scale * weights.scale, constant=held)
    return [source, weights, bias], like(source, scale=0.1 * depth**0.5)


def geometry(sizes: Sizes, nchw: bool, depth_multiplier: int | None = None) -> list[Scalar]:
    """Return the scalars after the tensors of a convolution."""
    multiplier: list[Scalar] = [] if depth_multiplier is None else [depth_multiplier]
    activation = int(FuseCode.RELU6)
    return [*sizes.padding, *sizes.stride[::-1], *multiplier, activation, nchw, *sizes.dilation[::-1]]

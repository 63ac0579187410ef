# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE, DEQUANTIZE, CAST on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import ChannelQuant, dtype_of
from tests.gpu_driver.operations.compare import FLOAT16, FLOAT32, INT32, QUANT8, SIGNED, Value, check, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

SHAPES: list[Dimensions] = [(1,), (15,), (16,), (65,), (1, 57, 3, 5, 7), (1, 224, 224, 3)]
FLOATS = (FLOAT32, FLOAT16)
SYMM, PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
CASTABLE = (FLOAT32, FLOAT16, INT32, QUANT8)


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("result", [QUANT8, SIGNED], ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", FLOATS, ids=lambda code: code.name)
def test_quantize(opencl_device: Device, data_type: OperandCode, result: OperandCode, dims: Dimensions) -> None:
    output = Value(result, np.empty(0), 0.037, 11)
    check(opencl_device, OperationCode.QUANTIZE, [random_tensor(data_type, dims)], output)


@pytest.mark.parametrize("scale", [1.0, 0.1, 1 / 3, 0.0078125, 1e-6, 3.7e4, 0.0039215689])
@pytest.mark.parametrize("result", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_quotients_are_rounded_like_the_hosts(opencl_device: Device, result: OperandCode, scale: float) -> None:
    halves = ((np.arange(-600, 600) + 0.5) * scale).astype(np.float32)
    near = [np.nextafter(halves, np.float32(np.inf)), np.nextafter(halves, np.float32(-np.inf))]
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45], np.float32)
    random = (np.random.default_rng(2).uniform(-300, 300, 20000) * scale).astype(np.float32)
    source = Value(FLOAT32, np.concatenate([halves, *near, special, random]))
    check(opencl_device, OperationCode.QUANTIZE, [source], Value(result, np.empty(0), scale, 100))


@pytest.mark.parametrize("dims", [(1,), (15,), (17,), (2, 3, 5, 65)], ids=str)
@pytest.mark.parametrize("result", FLOATS, ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", [QUANT8, SIGNED, SYMM], ids=lambda code: code.name)
def test_dequantize(opencl_device: Device, data_type: OperandCode, result: OperandCode, dims: Dimensions) -> None:
    source = random_tensor(QUANT8 if data_type == QUANT8 else SIGNED, dims)
    value = Value(data_type, source.data, 0.031, 0 if data_type == SYMM else 21)
    check(opencl_device, OperationCode.DEQUANTIZE, [value], Value(result, np.empty(0)))


@pytest.mark.parametrize("channel_dim", [0, 1, 2])
@pytest.mark.parametrize("result", FLOATS, ids=lambda code: code.name)
def test_dequantize_per_channel(opencl_device: Device, result: OperandCode, channel_dim: int) -> None:
    data = random_tensor(SIGNED, (3, 5, 7)).data
    scales = tuple(0.01 * (i + 1) for i in range(data.shape[channel_dim]))
    value = Value(PER_CHANNEL, data, channel_quant=ChannelQuant(scales, channel_dim))
    check(opencl_device, OperationCode.DEQUANTIZE, [value], Value(result, np.empty(0)))


@pytest.mark.parametrize("result", CASTABLE, ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", CASTABLE, ids=lambda code: code.name)
def test_cast(opencl_device: Device, data_type: OperandCode, result: OperandCode) -> None:
    dtype = dtype_of(data_type)
    values = np.random.default_rng(3).uniform(-400, 400, 77)
    extremes = [0, 1.5, -1.5, 255.9, 256, 65504, -65504]
    if data_type in FLOATS:
        extremes += [np.inf, -np.inf, np.nan]
    if data_type == INT32:
        extremes += [2**31 - 1, -(2**31), 16777217]
    if data_type == FLOAT32:
        extremes += [2147483520.0, 2147483648.0, -2147483648.0, 1e20, -1e20]
    numbers = np.concatenate([values, extremes])
    data = numbers.astype(dtype) if data_type != QUANT8 else numbers[:77].clip(0, 255).astype(dtype)
    source = Value(data_type, data, *((0.5, 3) if data_type == QUANT8 else ()))
    check(opencl_device, OperationCode.CAST, [source], Value(result, data, *((0.5, 3) if result == QUANT8 else ())))


def test_cast_to_itself_is_a_copy(opencl_device: Device) -> None:
    source = Value(OperandCode.TENSOR_BOOL8, np.array([True, False, True]))
    check(opencl_device, OperationCode.CAST, [source], source)

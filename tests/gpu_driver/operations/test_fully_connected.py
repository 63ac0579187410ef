# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED on the device: 8-bit sums rounded once, next to ties."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.convolution import packing
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.operations.compare import FLOAT16, FLOAT32, INT32, QUANT8, SIGNED, Value, check, execute, nothing

if TYPE_CHECKING:
    from nn_runtime.device import Device

SIZES = [(1, 1, 1), (3, 15, 17), (8, 33, 16), (5, 64, 47), (1, 2049, 3)]
TYPES = (FLOAT32, FLOAT16, QUANT8, SIGNED)


@pytest.mark.parametrize("constant", [True, False], ids=["packed", "general"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("data_type", TYPES, ids=lambda code: code.name)
def test_every_type_and_size(
    opencl_device: Device, data_type: OperandCode, sizes: tuple[int, int, int], constant: bool
) -> None:
    rows, depth, units = sizes
    rng = np.random.default_rng(depth)

    def tensor(dims: tuple[int, ...], scale: float, zero_point: int, held: bool) -> Value:
        if data_type in (FLOAT32, FLOAT16):
            dtype = np.float32 if data_type == FLOAT32 else np.float16
            return Value(data_type, rng.uniform(-1, 1, dims).astype(dtype), constant=held)
        signed = data_type == SIGNED
        data = rng.integers(0, 256, dims).astype(np.uint8)
        return Value(data_type, data.view(np.int8) if signed else data, scale, zero_point - 128 * signed, constant=held)

    source, weights = tensor((rows, depth), 0.5, 100, False), tensor((units, depth), 0.25, 133, constant)
    if data_type in (FLOAT32, FLOAT16):
        bias = tensor((units,), 0, 0, constant)
        output = nothing(data_type)
    else:
        bias = Value(INT32, rng.integers(-5000, 5000, units).astype(np.int32), 0.125, constant=constant)
        output = nothing(data_type, 0.125 * 60 * depth**0.5, 120 - 128 * (data_type == SIGNED))
    deep = depth**0.5
    check(
        opencl_device, OperationCode.FULLY_CONNECTED, [source, weights, bias, int(FuseCode.NONE)], output,
        tolerance_of=deep,
    )  # fmt: skip


@pytest.mark.parametrize("constant", [True, False], ids=["packed", "general"])
@pytest.mark.parametrize("real", [0.0371, 2.0**-9, 1.0, 3.7, 2.0**-20 * 1.7, 0.75])
def test_sums_are_rounded_once(opencl_device: Device, real: float, constant: bool) -> None:
    """The bias brings sums next to every tie of the range; floor(sum * real + 1/2) in exact integers is right."""
    scale = float(np.float32(1 / real))
    fraction, exponent = math.frexp(1.0 / scale)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    ties = np.floor((np.arange(-140, 140) + 0.5) / real).astype(np.int64)
    sums = (ties[:, np.newaxis] + np.arange(-2, 3)).reshape(-1)
    wanted = [min(max((int(one) * mantissa + (1 << (30 - exponent))) >> (31 - exponent), -128), 127) for one in sums]
    inputs = [
        Value(SIGNED, np.zeros((1, 1), np.int8), 1.0, 0),
        Value(SIGNED, np.zeros((sums.size, 1), np.int8), 1.0, 0, constant=constant),
        Value(INT32, sums.astype(np.int32), 1.0, constant=constant),
        int(FuseCode.NONE),
    ]
    got = execute(opencl_device, OperationCode.FULLY_CONNECTED, inputs, nothing(SIGNED, scale, 0), (1, sums.size))
    assert got.reshape(-1).tolist() == wanted


@pytest.mark.parametrize("depth", [1, 7, 8, 1000])
@pytest.mark.parametrize("kind", ["halves", "one is none", "large", "not a number"])
def test_weights_that_were_halves(opencl_device: Device, kind: str, depth: int) -> None:
    """Weights of one row are kept as halves where all are such numbers; answers are those of float64 either way."""
    rng = np.random.default_rng(depth)
    weights = rng.uniform(-2, 2, (45, depth)).astype(np.float16).astype(np.float32)
    weights[-1, -1] = {"halves": 2**-24, "one is none": 1 / 3, "large": 1e5, "not a number": np.nan}[kind]
    source, bias = rng.uniform(-1, 1, (1, depth)).astype(np.float32), rng.uniform(-1, 1, 45).astype(np.float32)
    halves = packing.as_halves(packing.pack_conv_weights(weights))
    assert (halves is not None) == (kind == "halves")
    operands = [Value(FLOAT32, source), *(Value(FLOAT32, one, constant=True) for one in (weights, bias))]
    got = execute(
        opencl_device, OperationCode.FULLY_CONNECTED, [*operands, int(FuseCode.NONE)], nothing(FLOAT32), (1, 45)
    )
    wanted = source.astype(np.float64) @ weights.astype(np.float64).T + bias
    np.testing.assert_allclose(got, wanted, 1e-5, 1e-5 * depth**0.5)

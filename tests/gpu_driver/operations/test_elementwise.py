# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.launchers.broadcast import broadcast
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.gpu_driver.operations.compare import ALL, FLOAT32, INT32, QUANT8, SIGNED, Value, check, like, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

CODES = (OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV)
SHAPES: list[tuple[Dimensions, Dimensions]] = [
    ((1,), (1,)),
    ((15,), (15,)),
    ((16,), (1,)),
    ((1,), (65,)),
    ((3, 5, 7), (3, 5, 7)),
    ((1, 56, 56, 24), (1, 56, 56, 24)),
    ((2, 9, 33, 24), (24,)),
    ((24,), (2, 9, 33, 24)),
    ((1, 17, 3), (9, 1, 3)),
    ((2, 1, 5, 1), (1, 3, 1, 40)),
    ((2, 3, 1, 1), (2, 3, 17, 65)),
    ((4, 1, 63), (1, 5, 1)),
    ((40, 50, 3), (3,)),
    ((5,), (2, 7, 33, 5)),
    ((4, 1, 40, 3), (1, 2, 40, 1)),
]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_every_type_and_shape(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, shapes: tuple[Dimensions, Dimensions]
) -> None:
    if code == OperationCode.DIV and data_type in (QUANT8, SIGNED):
        pytest.skip("no 8-bit DIV")
    first = random_tensor(data_type, shapes[0], 1)
    second = replace(random_tensor(data_type, shapes[1], 2), scale=first.scale and 0.013)
    output = like(first, scale=first.scale and 0.07)
    check(opencl_device, code, [first, second, FuseCode.NONE.value], output)


@pytest.mark.parametrize("activation", list(FuseCode), ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_activations(opencl_device: Device, data_type: OperandCode, activation: FuseCode) -> None:
    first, second = random_tensor(data_type, (3, 50), 1), random_tensor(data_type, (3, 50), 2)
    check(opencl_device, OperationCode.ADD, [first, second, activation.value], first)


@pytest.mark.parametrize("code", CODES[:3], ids=lambda code: code.name)
@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.5), (1e-4, 3.0, 4.0), (0.5, 2e-7, 1e-6), (7.0, 1e-3, 0.03)], ids=str)
@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_every_pair_of_codes(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, scales: tuple[float, float, float]
) -> None:
    if code == OperationCode.MUL and scales[2] <= scales[0] * scales[1]:
        pytest.skip("MUL needs a larger output scale")
    dtype, zero = (np.uint8, 117) if data_type == QUANT8 else (np.int8, -11)
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    first, second = np.meshgrid(codes, codes, indexing="ij")
    values = [
        Value(data_type, np.ascontiguousarray(data), scale, zero)
        for data, scale in ((first, scales[0]), (second, scales[1]))
    ]
    check(opencl_device, code, [*values, FuseCode.NONE.value], like(values[0], scale=scales[2], zero_point=zero + 3))


@pytest.mark.parametrize("code", [OperationCode.ADD, OperationCode.SUB], ids=lambda code: code.name)
def test_sums_far_beyond_what_a_byte_holds(opencl_device: Device, code: OperationCode) -> None:
    """Of scales so much greater than the output's that the integers nearest to sums are not found by adding 2^23."""
    pairs = np.indices((256, 256), dtype=np.uint8)
    first, second = (Value(QUANT8, data, scale, 128) for data, scale in zip(pairs, (2e5, 3e4), strict=True))
    check(opencl_device, code, [first, second, FuseCode.NONE.value], like(first, 0.05, 0))


def test_integer_division_rounds_down_and_survives_extremes(opencl_device: Device) -> None:
    least, largest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    numbers = np.array([least, -7, -1, 0, 1, 7, largest], np.int32)
    first = Value(INT32, np.ascontiguousarray(np.broadcast_to(numbers[:, None], (7, 7)).reshape(49)))
    second = Value(INT32, np.tile(numbers, 7))
    for code in CODES:
        check(opencl_device, code, [first, second, FuseCode.NONE.value], first)


def test_nan_passes_a_fused_activation(opencl_device: Device) -> None:
    data = np.full(20, np.nan, np.float32)
    value = Value(FLOAT32, data)
    check(opencl_device, OperationCode.ADD, [value, value, FuseCode.RELU6.value], value)


def test_dimensions_that_go_together_are_merged() -> None:
    equal = broadcast((2, 3, 4), (2, 3, 4), (2, 3, 4))
    assert (equal.sizes, equal.strides0, equal.strides1) == ((24,), (1,), (1,))
    by_channel = broadcast((2, 3, 4), (4,), (2, 3, 4))
    assert (by_channel.sizes, by_channel.strides0, by_channel.strides1) == ((6, 4), (4, 1), (0, 1))
    by_number = broadcast((2, 3, 4), (1,), (2, 3, 4))
    assert (by_number.sizes, by_number.strides0, by_number.strides1) == ((24,), (1,), (0,))
    assert broadcast((1,), (1,), (1,)).sizes == ()


@pytest.mark.parametrize("code", ALL, ids=lambda code: code.name)
def test_gpus_use_aligned_vectors_where_they_may(as_gpu: Device, code: OperandCode) -> None:
    """The last sixteen elements begin at any multiple of an element's size."""
    for count in (17, 20, 24, 36, 100):
        left, right = random_tensor(code, (count,), 1), random_tensor(code, (count,), 2)
        check(as_gpu, OperationCode.ADD, [left, right, int(FuseCode.NONE)], left)

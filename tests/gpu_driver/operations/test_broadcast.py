# SPDX-License-Identifier: Apache-2.0
"""MAXIMUM, MINIMUM, POW, PRELU, comparisons, LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, SELECT on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_driver.launchers.broadcast import broadcast_refusal
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operations.comparison import COMPARISONS
from tests.gpu_driver.operations.compare import (
    ALL,
    BOOL8,
    FLOAT16,
    FLOAT32,
    INT32,
    QUANT8,
    SIGNED,
    Value,
    check,
    execute,
    like,
    nothing,
    random_tensor,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Array, Dimensions

EXTREMES = (OperationCode.MAXIMUM, OperationCode.MINIMUM)
SHAPES: list[tuple[Dimensions, Dimensions]] = [
    ((1,), (1,)),
    ((65,), (65,)),
    ((15,), (1,)),
    ((1,), (2, 64)),
    ((1, 9, 33, 24), (24,)),
    ((17, 1, 3), (1, 9, 3)),
    ((2, 5, 70), (5, 1)),
    ((2, 1, 5, 1), (3, 1, 40)),
    ((2, 1, 2, 1, 3, 1, 2, 1), (1, 3, 1, 2, 1, 2, 1, 3)),
    ((2, 1, 3, 1, 2), (7, 3, 2, 1)),
]


def pair(data_type: OperandCode, shapes: tuple[Dimensions, Dimensions]) -> tuple[Value, Value]:
    """Return two tensors with own quantisations; real numbers and integers often equal."""
    first, second = random_tensor(data_type, shapes[0], 1), random_tensor(data_type, shapes[1], 2)
    if data_type in (FLOAT32, FLOAT16):
        return replace(first, data=np.round(first.data)), replace(second, data=np.round(second.data))
    if data_type == INT32:
        return replace(first, data=first.data >> 28), replace(second, data=second.data >> 28)
    return first, replace(second, scale=second.scale and 0.1)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", [*ALL, INT32, BOOL8], ids=lambda code: code.name)
@pytest.mark.parametrize("code", COMPARISONS, ids=lambda code: code.name)
def test_comparisons(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, shapes: tuple[Dimensions, Dimensions]
) -> None:
    check(opencl_device, code, pair(data_type, shapes), nothing(BOOL8))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
@pytest.mark.parametrize("code", EXTREMES, ids=lambda code: code.name)
def test_extremes(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, shapes: tuple[Dimensions, Dimensions]
) -> None:
    first, second = pair(data_type, shapes)
    check(opencl_device, code, [first, second], like(first, scale=first.scale and 0.07, zero_point=first.zero_point))


@pytest.mark.parametrize("code", [*EXTREMES, OperationCode.EQUAL, OperationCode.GREATER, OperationCode.LESS_EQUAL])
def test_nan_and_infinities(opencl_device: Device, code: OperationCode) -> None:
    numbers = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1], np.float32)
    first = Value(FLOAT32, np.repeat(numbers, 6))
    second = Value(FLOAT32, np.tile(numbers, 6))
    check(opencl_device, code, [first, second], first if code in EXTREMES else nothing(BOOL8))


@pytest.mark.parametrize("scales", [(0.1, 0.05, 0.2), (1e-3, 7.0, 0.9), (3.0, 1e-6, 1e-5)], ids=str)
@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
@pytest.mark.parametrize("code", [*EXTREMES, OperationCode.PRELU, OperationCode.GREATER_EQUAL, OperationCode.EQUAL])
def test_every_pair_of_codes(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, scales: tuple[float, float, float]
) -> None:
    dtype, zero = (np.uint8, 117) if data_type == QUANT8 else (np.int8, -11)
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    first = Value(data_type, codes.reshape(256, 1), scales[0], zero)
    second = Value(data_type, codes, scales[1], zero + 5)
    output = nothing(BOOL8) if code in COMPARISONS else like(first, scale=scales[2], zero_point=zero + 3)
    check(opencl_device, code, [first, second], output)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_prelu(opencl_device: Device, data_type: OperandCode, shapes: tuple[Dimensions, Dimensions]) -> None:
    first, second = random_tensor(data_type, shapes[0], 1), random_tensor(data_type, shapes[1], 2)
    check(opencl_device, OperationCode.PRELU, [first, second], like(first, scale=first.scale and 0.09))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_pow(opencl_device: Device, data_type: OperandCode, shapes: tuple[Dimensions, Dimensions]) -> None:
    base, exponent = random_tensor(data_type, shapes[0], 1, spread=1), random_tensor(data_type, shapes[1], 2, spread=1)
    check(
        opencl_device,
        OperationCode.POW,
        [replace(base, data=np.abs(base.data) + base.data.dtype.type(0.5)), exponent],
        base,
    )


_RNG = np.random.default_rng(0)
_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -2.0, 0.5, -3.0, 1.2e-38, 3e38, -3e38, 16777217.0)


@pytest.mark.parametrize(
    ("bases", "exponents"),
    [
        (_RNG.uniform(0, 4, 5000), _RNG.uniform(-5, 5, 5000)),
        (np.exp(_RNG.uniform(-80, 80, 5000)), _RNG.uniform(-1, 1, 5000)),
        (_RNG.uniform(0.999, 1.001, 5000), _RNG.uniform(-50_000, 50_000, 5000)),
        (_RNG.uniform(-5, 5, 5000), _RNG.integers(-9, 10, 5000)),
        (_RNG.uniform(-5, 5, 5000), _RNG.uniform(-3, 3, 5000)),
        (np.exp(_RNG.uniform(-80, 80, 5000)), _RNG.uniform(-3, 3, 5000)),
        (np.repeat([*_SPECIAL, 1e-45], len(_SPECIAL)), np.tile(_SPECIAL, len(_SPECIAL) + 1)),
    ],
    ids=["usual", "wide", "near 1", "whole", "negative", "beyond", "special"],
)
def test_powers_are_right_to_the_last_bits(opencl_device: Device, bases: Array, exponents: Array) -> None:
    """Numbers below the least normal one count as zeros, as bases and as results."""
    base, exponent = (Value(FLOAT32, values.astype(np.float32)) for values in (bases, exponents))
    result = execute(opencl_device, OperationCode.POW, [base, exponent], base, bases.shape)
    least, real = np.finfo(np.float32).tiny, base.data.astype(np.float64)
    with np.errstate(all="ignore"):
        right = np.power(np.where(np.abs(real) < least, np.copysign(0, real), real), exponent.data.astype(np.float64))
        right = right.astype(np.float32)
    np.testing.assert_allclose(result.astype(np.float64), right.astype(np.float64), rtol=2.0**-20, atol=2 * least)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("code", [OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR], ids=lambda code: code.name)
def test_logic(opencl_device: Device, code: OperationCode, shapes: tuple[Dimensions, Dimensions]) -> None:
    check(opencl_device, code, pair(BOOL8, shapes), nothing(BOOL8))


def test_every_byte_but_0_is_true(opencl_device: Device) -> None:
    every = Value(BOOL8, np.arange(256, dtype=np.uint8).view(np.bool_))
    other = Value(BOOL8, np.full(1, 2, np.uint8).view(np.bool_))
    for code in (OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR, OperationCode.EQUAL):
        check(opencl_device, code, [every, other], nothing(BOOL8))
    check(opencl_device, OperationCode.LOGICAL_NOT, [every], nothing(BOOL8))
    numbers = Value(FLOAT32, np.arange(256, dtype=np.float32))
    check(opencl_device, OperationCode.SELECT, [every, numbers, like(numbers)], numbers)


@pytest.mark.parametrize("dims", [(1,), (65,), (2, 3, 5, 7, 2), (300, 70)], ids=str)
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
def test_select(opencl_device: Device, data_type: OperandCode, dims: Dimensions) -> None:
    condition = random_tensor(BOOL8, dims)
    first, second = pair(data_type, (dims, dims))
    output = like(first, scale=first.scale and 0.08)
    check(opencl_device, OperationCode.SELECT, [condition, first, second], output)


def test_more_than_8_alternating_dimensions_are_refused() -> None:
    assert broadcast_refusal((2, 1) * 4, (1, 2) * 4) == ""
    assert broadcast_refusal((2, 3) * 9, (2, 3) * 9) == ""
    assert "over 10 dimensions, the kernel over at most 8" in broadcast_refusal((2, 1) * 5, (1, 2) * 5)

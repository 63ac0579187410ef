# SPDX-License-Identifier: Apache-2.0
"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import (
    FLOAT16,
    FLOAT32,
    INT32,
    QUANT8,
    SIGNED,
    Value,
    check,
    execute,
    like,
    random_tensor,
)

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

CODES = (
    OperationCode.ABS,
    OperationCode.EXP,
    OperationCode.FLOOR,
    OperationCode.LOG,
    OperationCode.NEG,
    OperationCode.RSQRT,
    OperationCode.SIN,
    OperationCode.SQRT,
)
POSITIVE = (OperationCode.LOG, OperationCode.RSQRT, OperationCode.SQRT)
SHAPES: list[Dimensions] = [(1,), (15,), (16,), (65,), (2, 3, 5, 7), (100, 101)]


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_real_numbers(opencl_device: Device, code: OperationCode, data_type: OperandCode, dims: Dimensions) -> None:
    source = random_tensor(data_type, dims)
    if code in POSITIVE:
        source = replace(source, data=np.abs(source.data) + data_type_epsilon(source))
    check(opencl_device, code, [source], source)


def data_type_epsilon(value: Value) -> np.generic:
    return value.data.dtype.type(0.01)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_special_numbers(opencl_device: Device, code: OperationCode) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 88.0, -88.0, 0.5, -0.5], np.float32)
    if code == OperationCode.EXP:
        special = special[:10]
    check(opencl_device, code, [Value(FLOAT32, special)], Value(FLOAT32, special), tolerance_of=2)


@pytest.mark.parametrize("code", [OperationCode.ABS, OperationCode.NEG], ids=lambda code: code.name)
def test_integers_wrap(opencl_device: Device, code: OperationCode) -> None:
    info = np.iinfo(np.int32)
    source = Value(INT32, np.array([info.min, info.min + 1, -1, 0, 1, info.max], np.int32))
    check(opencl_device, code, [source], source)


@pytest.mark.parametrize("zero_point", [0, 128, 255])
@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_every_code_of_rsqrt(opencl_device: Device, data_type: OperandCode, zero_point: int) -> None:
    offset = 0 if data_type == QUANT8 else -128
    codes = np.arange(256, dtype=np.uint8).view(np.uint8 if data_type == QUANT8 else np.int8)
    source = Value(data_type, codes, 0.03, zero_point + offset)
    check(opencl_device, OperationCode.RSQRT, [source], like(source, scale=0.05, zero_point=offset + 3))


@pytest.mark.parametrize("greatest", [0.1, 4.0, 100.0, 8192.0, 20000.0])
def test_sines_are_right_to_the_last_bits(opencl_device: Device, greatest: float) -> None:
    half_turns = np.arange(0, greatest, np.pi).astype(np.float32)
    angles = np.concatenate(
        [np.random.default_rng(0).uniform(-greatest, greatest, 5000).astype(np.float32), half_turns]
    )
    source = Value(FLOAT32, angles)
    result = execute(opencl_device, OperationCode.SIN, [source], source, angles.shape)
    right = np.sin(angles.astype(np.float64))
    assert (np.abs(result - right) <= 4 * np.spacing(np.abs(right).astype(np.float32))).all()


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16])
@pytest.mark.parametrize("large", [3e7, 1e9, 3e38, np.inf, np.nan])
def test_sines_of_small_angles_beside_a_large_one(opencl_device: Device, data_type: OperandCode, large: float) -> None:
    dtype = np.float32 if data_type == FLOAT32 else np.float16
    angles = np.random.default_rng(0).uniform(-0.01, 0.01, 65)
    angles[5::16] = np.inf if large > float(np.finfo(dtype).max) else large
    source = Value(data_type, angles.astype(dtype))
    result = execute(opencl_device, OperationCode.SIN, [source], source, (65,))
    with np.errstate(invalid="ignore"):
        wanted = np.sin(source.data.astype(np.float64))
    np.testing.assert_allclose(result, wanted, rtol=1e-6 if data_type == FLOAT32 else 1e-3, atol=1e-6)


def test_logarithms_of_all_sizes(opencl_device: Device) -> None:
    """Within 1 ulp of float64's, beside 1 and where the exponent is all there is, too."""
    random = np.random.default_rng(5)
    parts = [random.uniform(*bounds, 4000) for bounds in ((-87.3, 88.7), (-1e-3, 1e-3), (-0.4, 0.4))]
    values = np.exp(np.concatenate(parts)).astype(np.float32)
    source = Value(FLOAT32, values)
    result = execute(opencl_device, OperationCode.LOG, [source], source, values.shape)
    wanted = np.log(values.astype(np.float64))
    errors = np.abs(result - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert errors.max() <= 1

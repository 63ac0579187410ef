# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION, LOG_SOFTMAX, ELU on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import ALL, FLOAT16, FLOAT32, QUANT8, SIGNED, Value, check, like, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

AXES: list[tuple[Dimensions, int]] = [
    ((1,), 0),
    ((65,), -1),
    ((3, 1), 1),
    ((2, 7, 33), 1),
    ((2, 3, 5, 1001), 3),
    ((70, 3, 2), 0),
    ((2, 37, 5), 2),
    ((3, 11, 16), 2),
    ((300, 40), 1),
]
FLOATS = (FLOAT32, FLOAT16)


@pytest.mark.parametrize(("dims", "axis"), AXES, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_l2_normalization(opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int) -> None:
    source = random_tensor(data_type, dims)
    zero_point = {QUANT8: 128}.get(data_type, 0)
    output = like(source, scale=source.scale and 1 / 128, zero_point=zero_point)
    check(opencl_device, OperationCode.L2_NORMALIZATION, [source, axis], output)


@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
@pytest.mark.parametrize("zero_point", [0, 1, 77, 128, 255])
def test_every_code_in_rows_of_every_norm(opencl_device: Device, data_type: OperandCode, zero_point: int) -> None:
    offset = 0 if data_type == QUANT8 else -128
    codes = np.arange(256, dtype=np.int64)
    rows = np.stack([codes, np.minimum(codes, 255 - codes), np.full(256, zero_point)], -1)
    long_row = np.resize(rows, (1, 3 * 40000))  # its sum of squares is more than 32 bits hold
    for data in (rows, rows[:, :1], long_row):
        stored = (data + offset).astype(np.uint8 if data_type == QUANT8 else np.int8)
        source = Value(data_type, np.ascontiguousarray(stored), 0.1, zero_point + offset)
        output = like(source, scale=1 / 128, zero_point=128 + offset)
        check(opencl_device, OperationCode.L2_NORMALIZATION, [source, -1], output)


def test_zeros_stay_zeros(opencl_device: Device) -> None:
    for depth in (5, 37):
        source = Value(FLOAT32, np.zeros((3, depth), np.float32))
        check(opencl_device, OperationCode.L2_NORMALIZATION, [source], source)


@pytest.mark.parametrize("radius", [0, 1, 4, 2**31 - 1])
@pytest.mark.parametrize(("dims", "axis"), AXES, ids=str)
@pytest.mark.parametrize("data_type", FLOATS, ids=lambda code: code.name)
def test_local_response_normalization(
    opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int, radius: int
) -> None:
    source = random_tensor(data_type, dims)
    inputs = [source, radius, 1.5, 0.25, 0.75, axis]
    check(opencl_device, OperationCode.LOCAL_RESPONSE_NORMALIZATION, inputs, source)


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 3, 5, 17), (1, 40, 50, 3), (3, 2, 2, 65)], ids=str)
@pytest.mark.parametrize("data_type", FLOATS, ids=lambda code: code.name)
def test_instance_normalization(opencl_device: Device, data_type: OperandCode, dims: Dimensions, nchw: bool) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.INSTANCE_NORMALIZATION, [source, 1.5, -0.25, 1e-3, nchw], source)


def test_a_large_mean_leaves_the_variance_alone(opencl_device: Device) -> None:
    source = random_tensor(FLOAT32, (1, 100, 100, 3))
    shifted = replace(source, data=source.data + np.float32(100))
    inputs = [shifted, 1.0, 0.0, 1e-3, False]
    check(opencl_device, OperationCode.INSTANCE_NORMALIZATION, inputs, source, tolerance_of=3)


@pytest.mark.parametrize(("dims", "axis"), AXES, ids=str)
@pytest.mark.parametrize("data_type", FLOATS, ids=lambda code: code.name)
def test_log_softmax(opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.LOG_SOFTMAX, [source, 0.5, axis], source)


@pytest.mark.parametrize("alpha", [1.0, 0.0, -2.5])
@pytest.mark.parametrize("data_type", FLOATS, ids=lambda code: code.name)
def test_elu(opencl_device: Device, data_type: OperandCode, alpha: float) -> None:
    source = random_tensor(data_type, (3, 65))
    source.data[0, :5] = [np.inf, -np.inf, np.nan, 0.0, -0.0]
    check(opencl_device, OperationCode.ELU, [source, alpha], source)

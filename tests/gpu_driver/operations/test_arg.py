# SPDX-License-Identifier: Apache-2.0
"""ARGMAX, ARGMIN on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import ALL, FLOAT32, INT32, Value, check, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

CODES = (OperationCode.ARGMAX, OperationCode.ARGMIN)
CASES: list[tuple[Dimensions, int]] = [
    ((1,), 0),
    ((1, 1), -1),
    ((5, 15), 1),
    ((5, 16), 1),
    ((33, 33, 21), -1),
    ((3, 65), -1),
    ((3, 1001), -1),
    ((3, 65), 0),
    ((2, 3, 4, 5, 6), 2),
    ((1, 9, 20), 1),
]


@pytest.mark.parametrize(("dims", "axis"), CASES, ids=str)
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_type_and_axis(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, dims: Dimensions, axis: int
) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, code, [source, axis], Value(INT32, np.empty(0)))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_the_first_of_equal_ones_wins(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, axis: int
) -> None:
    source = random_tensor(data_type, (40, 40))
    few = Value(source.type, source.data // 100 if source.scale else np.floor(source.data / 4), source.scale, 3)
    data = few.data.astype(source.data.dtype)
    value = Value(source.type, data, source.scale, source.zero_point)
    check(opencl_device, code, [value, axis], Value(INT32, np.empty(0)))


def test_every_position_is_found(opencl_device: Device) -> None:
    source = Value(FLOAT32, np.eye(50, dtype=np.float32) - 7)
    check(opencl_device, OperationCode.ARGMAX, [source, 1], Value(INT32, np.empty(0)))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_least_integer_is_found(opencl_device: Device, axis: int) -> None:
    least = np.iinfo(np.int32).min
    source = Value(INT32, np.where(np.eye(20, dtype=bool), least, least + 1).astype(np.int32))
    check(opencl_device, OperationCode.ARGMIN, [source, axis], Value(INT32, np.empty(0)))

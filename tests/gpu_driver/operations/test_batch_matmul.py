# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import FLOAT16, FLOAT32, INT32, SIGNED, Value, check, like, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

SIZES = [
    (1, 1, 1),
    (3, 5, 15),
    (3, 5, 16),
    (8, 1, 17),
    (9, 7, 33),
    (17, 64, 65),
    (1, 300, 40),
    (2, 47, 150),
    (4, 33, 70),
]
TYPES = (FLOAT32, FLOAT16, SIGNED, INT32)


@pytest.mark.parametrize("adjoined", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("data_type", TYPES, ids=lambda code: code.name)
def test_every_type_and_size(
    opencl_device: Device,
    data_type: OperandCode,
    leading: Dimensions,
    sizes: tuple[int, int, int],
    adjoined: tuple[bool, bool],
) -> None:
    rows, depth, columns = sizes
    left = random_tensor(data_type, (*leading, *((depth, rows) if adjoined[0] else (rows, depth))), 1, spread=0.5)
    right = random_tensor(
        data_type, (*leading, *((columns, depth) if adjoined[1] else (depth, columns))), 2, spread=0.5
    )
    output = like(left, scale=left.scale and 0.05 * depth**0.5)
    check(opencl_device, OperationCode.BATCH_MATMUL, [left, right, *adjoined], output)


@pytest.mark.parametrize("columns", [3, 20])
def test_integers_wrap(opencl_device: Device, columns: int) -> None:
    info = np.iinfo(np.int32)
    left = Value(INT32, np.array([[info.min, info.max, -1], [info.max, info.max, info.max]], np.int32))
    right = replace(left, data=np.resize(left.data, (3, columns)))
    check(opencl_device, OperationCode.BATCH_MATMUL, [left, right, False, False], left)


def test_long_rows_of_integers_wrap(opencl_device: Device) -> None:
    info = np.iinfo(np.int32)
    left = Value(INT32, np.random.default_rng(1).integers(info.min, info.max, (2, 47), np.int32))
    right = replace(left, data=np.random.default_rng(2).integers(info.min, info.max, (20, 47), np.int32))
    check(opencl_device, OperationCode.BATCH_MATMUL, [left, right, False, True], left)

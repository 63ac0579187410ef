# SPDX-License-Identifier: Apache-2.0
"""SELECT on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from tests.gpu_driver.operations.compare import ALL, BOOL8, INT32, Value, check, random_tensor

if TYPE_CHECKING:
    from nn_runtime.codes import OperandCode
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

SHAPES: list[Dimensions] = [(1,), (15,), (16,), (65,), (2, 3, 5, 77), (1, 56, 56, 64)]


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("scales_differ", [False, True])
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
def test_select(opencl_device: Device, data_type: OperandCode, scales_differ: bool, dims: Dimensions) -> None:
    if scales_differ and data_type not in QUANT8_TYPES:
        pytest.skip("no scales")
    condition = Value(BOOL8, (np.arange(np.prod(dims)) % 7 % 3).astype(np.uint8).view(np.bool_).reshape(dims))
    true, false = random_tensor(data_type, dims, 1), random_tensor(data_type, dims, 2)
    if scales_differ:
        false = replace(false, scale=false.scale * 0.7)
    check(opencl_device, OperationCode.SELECT, [condition, true, false], replace(true, data=np.empty(0)))

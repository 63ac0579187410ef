# SPDX-License-Identifier: Apache-2.0
"""RELU, RELU1, RELU6, LOGISTIC, TANH, HARD_SWISH on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import ALL, FLOAT16, FLOAT32, QUANT8, SIGNED, Value, check, like, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

CLAMPS = (OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6)
SMOOTH = (OperationCode.LOGISTIC, OperationCode.TANH, OperationCode.HARD_SWISH)
SHAPES: list[Dimensions] = [(1,), (15,), (16,), (63,), (65,), (3, 5, 7, 11), (1, 56, 56, 24)]


def _output(code: OperationCode, source: Value) -> Value:
    """Return the output with the quantisation that LOGISTIC and TANH fix."""
    zero = -128 if source.type == SIGNED else 0
    if source.type not in (QUANT8, SIGNED) or code in CLAMPS:
        return source
    fixed = {OperationCode.LOGISTIC: (1 / 256, zero), OperationCode.TANH: (1 / 128, zero + 128)}
    scale, zero_point = fixed.get(code, (0.031, zero + 13))
    return like(source, scale, zero_point)


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
@pytest.mark.parametrize("code", [*CLAMPS, *SMOOTH], ids=lambda code: code.name)
def test_every_type_and_shape(
    opencl_device: Device, code: OperationCode, data_type: OperandCode, dims: Dimensions
) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, code, [source], _output(code, source))


@pytest.mark.parametrize("code", [*CLAMPS, *SMOOTH], ids=lambda code: code.name)
@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda code: code.name)
def test_extremes_of_floats(opencl_device: Device, code: OperationCode, data_type: OperandCode) -> None:
    values = [0.0, -0.0, 1e-30, -1e-30, 5.9, 6.1, 90, -90, 104, -104, 3e4, -3e4, np.inf, -np.inf, np.nan, -3, 3]
    if code == OperationCode.HARD_SWISH:
        values.remove(-np.inf)  # -inf * 0
    source = Value(data_type, np.array(values, np.float16 if data_type == FLOAT16 else np.float32))
    check(opencl_device, code, [source], source)


@pytest.mark.parametrize("scale", [0.002, 0.11, 1.7])
@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
@pytest.mark.parametrize("code", SMOOTH, ids=lambda code: code.name)
def test_every_8_bit_code(opencl_device: Device, code: OperationCode, data_type: OperandCode, scale: float) -> None:
    codes = np.arange(256, dtype=np.uint8).view(np.uint8 if data_type == QUANT8 else np.int8)
    source = Value(data_type, codes, scale, 7)
    check(opencl_device, code, [source], _output(code, source))

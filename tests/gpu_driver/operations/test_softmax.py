# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import ALL, QUANT8, SIGNED, Value, check, like, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

SHAPES: list[tuple[Dimensions, int]] = [
    ((1,), 0),
    ((1, 2), -1),
    ((3, 15), -1),
    ((2, 16), 1),
    ((70, 17), 1),
    ((5, 63), -1),
    ((3, 64), -1),
    ((40, 200), -1),
    ((1, 1001), -1),
    ((2, 3, 4, 65), 3),
    ((2, 3, 4, 65), 1),
    ((2, 21, 9), 1),
    ((300, 5), 0),
]


def _output(source: Value) -> Value:
    return like(source, 1 / 256, -128 if source.type == SIGNED else 0) if source.scale else source


@pytest.mark.parametrize(("dims", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_every_type_and_axis(opencl_device: Device, data_type: OperandCode, dims: Dimensions, axis: int) -> None:
    source = random_tensor(data_type, dims)
    check(opencl_device, OperationCode.SOFTMAX, [source, 0.7, axis], _output(source))


@pytest.mark.parametrize("depth", [9, 15, 16, 23, 24, 37, 64, 150], ids=str)
@pytest.mark.parametrize("parameters", [(1.0, 0.25), (0.3, 1e-4), (20.0, 2.0), (1.0, 0.0078125)], ids=str)
@pytest.mark.parametrize("data_type", [QUANT8, SIGNED], ids=lambda code: code.name)
def test_fixed_point_of_flat_and_steep_rows(
    opencl_device: Device, data_type: OperandCode, parameters: tuple[float, float], depth: int
) -> None:
    beta, scale = parameters
    rng = np.random.default_rng(1)
    spread = rng.integers(1, 256, (200, 1))
    codes = rng.integers(0, spread, (200, depth)).astype(np.uint8)
    source = Value(data_type, codes.view(np.uint8 if data_type == QUANT8 else np.int8), scale, 3)
    check(opencl_device, OperationCode.SOFTMAX, [source, beta], _output(source))


def test_long_equal_row(opencl_device: Device) -> None:
    source = Value(QUANT8, np.full((2, 40000), 9, np.uint8), 0.1, 3)
    check(opencl_device, OperationCode.SOFTMAX, [source, 1.0], _output(source))

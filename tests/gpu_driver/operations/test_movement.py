# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE, SLICE, CONCATENATION of sizes around those of vectors and tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.codes import OperandCode, OperationCode
from tests.gpu_driver.operations.compare import ALL, INT32, check, constant, execute, like, random_tensor

if TYPE_CHECKING:
    from nn_runtime.device import Device
    from nn_runtime.operand import Dimensions

ORDERS: list[tuple[Dimensions, list[int]]] = [
    ((15, 17), [1, 0]),
    ((16, 16), [1, 0]),
    ((17, 131), [1, 0]),
    ((2, 37, 5, 19), [0, 3, 1, 2]),
    ((2, 19, 37, 5), [0, 2, 3, 1]),
    ((3, 33, 2, 18), [3, 2, 1, 0]),
    ((2, 40, 3, 24), [0, 2, 1, 3]),
    ((300, 300, 3), [2, 0, 1]),
    ((3, 300, 300), [1, 2, 0]),
]


@pytest.mark.parametrize(("dims", "order"), ORDERS, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_transpose(opencl_device: Device, data_type: OperandCode, dims: Dimensions, order: list[int]) -> None:
    source = random_tensor(data_type, dims)
    wanted = source.data.transpose(order)
    found = execute(opencl_device, OperationCode.TRANSPOSE, [source, constant(order)], source, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("size", [1, 7, 8, 15, 16, 31, 257])
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
def test_slice_of_rows(opencl_device: Device, data_type: OperandCode, size: int) -> None:
    source = random_tensor(data_type, (23, 260))
    inputs = [source, constant([3, 2]), constant([11, size])]
    found = execute(opencl_device, OperationCode.SLICE, inputs, source, (11, size))
    np.testing.assert_array_equal(found, source.data[3:14, 2 : 2 + size])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_concatenation_brings_to_one_scale(opencl_device: Device, data_type: OperandCode, axis: int) -> None:
    shapes = [[5, 21, 33] for _ in range(2)]
    shapes[1][axis] = 70
    first, second = (random_tensor(data_type, tuple(shape), seed) for seed, shape in enumerate(shapes))
    other = replace(second, scale=second.scale and 0.031)
    check(opencl_device, OperationCode.CONCATENATION, [first, other, axis], like(first, scale=first.scale and 0.07))

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
    ((67, 61, 2, 8), [0, 1, 3, 2]),
    ((31, 37, 5, 12), [0, 2, 1, 3]),
    ((200, 5, 40, 2), [0, 2, 1, 3]),
    ((29, 5, 31, 7), [2, 1, 0, 3]),
    ((29, 3, 31, 5), [2, 0, 1, 3]),
    ((129, 3, 4, 129), [3, 0, 2, 1]),
    ((50, 47, 2), [2, 0, 1]),
    ((3, 2, 2500), [0, 2, 1]),
    ((700, 4, 16), [0, 2, 1]),
    ((3, 700, 4), [0, 2, 1]),
    ((8, 5, 1030), [1, 2, 0]),
    ((90, 31, 8), [0, 2, 1]),
]


@pytest.mark.parametrize(("dims", "order"), ORDERS, ids=str)
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_transpose(opencl_device: Device, data_type: OperandCode, dims: Dimensions, order: list[int]) -> None:
    source = random_tensor(data_type, dims)
    wanted = source.data.transpose(order)
    found = execute(opencl_device, OperationCode.TRANSPOSE, [source, constant(order)], source, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("begin", [2, 3, 4])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 31, 64, 256])
@pytest.mark.parametrize("data_type", [*ALL, INT32], ids=lambda code: code.name)
def test_slice_of_rows(opencl_device: Device, data_type: OperandCode, size: int, begin: int) -> None:
    source = random_tensor(data_type, (23, 260))
    inputs = [source, constant([3, begin]), constant([11, size])]
    found = execute(opencl_device, OperationCode.SLICE, inputs, source, (11, size))
    np.testing.assert_array_equal(found, source.data[3:14, begin : begin + size])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("data_type", ALL, ids=lambda code: code.name)
def test_concatenation_brings_to_one_scale(opencl_device: Device, data_type: OperandCode, axis: int) -> None:
    shapes = [[5, 21, 33] for _ in range(2)]
    shapes[1][axis] = 70
    first, second = (random_tensor(data_type, tuple(shape), seed) for seed, shape in enumerate(shapes))
    other = replace(second, scale=second.scale and 0.031)
    check(opencl_device, OperationCode.CONCATENATION, [first, other, axis], like(first, scale=first.scale and 0.07))

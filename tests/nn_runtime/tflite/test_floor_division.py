# SPDX-License-Identifier: Apache-2.0
"""FLOOR_DIV and FLOOR_MOD of real numbers near multiples of the divisor, where one step is a whole divisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.operator_file import Array, Step, Tensor, constant, int32, real, reference, write

if TYPE_CHECKING:
    from nn_runtime.device import Device


def file_of(code: str, source: Tensor, divisor: Tensor) -> bytes:
    fed = [position for position, tensor in enumerate((source, divisor)) if tensor.data is None]
    options = "FloorDivOptions" if code == "FLOOR_DIV" else "FloorModOptions"
    return write([source, divisor, source], [Step(code, [0, 1], [2], options)], fed, [2])


def results(code: str, numbers: Array, divisor: Array, is_known: bool, device: Device) -> tuple[Array, Array]:
    """Return the results on the device and LiteRT's."""
    file = file_of(code, real(numbers.size), constant(divisor) if is_known else real(divisor.size))
    inputs = [numbers] if is_known else [numbers, divisor]
    with nn.load(file).compile(device) as session:
        return session.run(inputs)[0], reference(file, inputs)[0]


def around_multiples(divisor: Array, factors: Array) -> Array:
    """Return multiples and their neighbours, without denormals, which some devices take for 0."""
    multiples = factors.astype(np.float32) * divisor
    ends = np.float32([0.0, 1e-30, -1e-30, np.nan])
    found = np.concatenate([multiples, np.nextafter(multiples, np.inf), np.nextafter(multiples, -np.inf), ends])
    is_denormal = (found != 0) & (np.abs(found) < np.finfo(np.float32).smallest_normal)
    return found[~is_denormal].astype(np.float32)


@pytest.mark.parametrize("code", ["FLOOR_DIV", "FLOOR_MOD"])
@pytest.mark.parametrize("number", [0.1, 0.7, -0.3, 6.2831855, -2.5, 1.0, 1.9999999])
@pytest.mark.parametrize("is_known", [True, False], ids=["constant", "of the run"])
def test_near_multiples(code: str, number: float, is_known: bool, device: Device) -> None:
    divisor = np.float32([number])
    large = np.random.default_rng(3).integers(-(1 << 24) + 2, 1 << 24, 3000)
    for factors in (np.arange(-999, 1000), large):
        result, wanted = results(code, around_multiples(divisor, factors), divisor, is_known, device)
        np.testing.assert_allclose(result, wanted, rtol=2.5e-7 if code == "FLOOR_MOD" else 0)


@pytest.mark.parametrize("is_known", [True, False], ids=["constant", "of the run"])
def test_large_and_infinite_divisors(is_known: bool, device: Device) -> None:
    largest = float(np.finfo(np.float32).max)
    numbers = np.float32([0, 5, -5, 5, -5, 1e20, 7, 3e34, 3])
    divisor = np.float32([np.inf, np.inf, np.inf, -np.inf, -largest, 1e31, 1e38, 9e33, np.nan])
    result, wanted = results("FLOOR_MOD", numbers, divisor, is_known, device)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_quotients_that_float32_has_no_neighbours_of(device: Device) -> None:
    numbers = np.float32([1e30, -1e30, np.inf, -np.inf, 3e10, 3e38, -3e38, 5])
    divisor = np.float32([0.7, 0.7, 0.7, 0.7, 0.7, 7e37, 7e37, 3e38])
    result, wanted = results("FLOOR_DIV", numbers, divisor, False, device)
    np.testing.assert_allclose(result, wanted, rtol=2e-7)


def test_quotients_of_halves(device: Device) -> None:
    numbers, divisor = np.float16([1, -1, 91.5, 7]), np.float16([0.25, 0.25, 3, -2])
    tensors = [Tensor(TensorType.FLOAT16, (4,)) for _ in range(3)]
    file = write(tensors, [Step("FLOOR_DIV", [0, 1], [2], "FloorDivOptions")], [0, 1], [2])
    with nn.load(file).compile(device) as session:
        np.testing.assert_array_equal(session.run([numbers, divisor])[0], np.floor_divide(numbers, divisor))


def test_other_divisors_are_refused() -> None:
    message = "operator 0 FLOOR_MOD: both inputs must be FLOAT32, or INT8, .*, got TENSOR_FLOAT32, TENSOR_INT32"
    with pytest.raises(BadData, match=message):
        nn.load(file_of("FLOOR_MOD", real(3), int32(3)))

# SPDX-License-Identifier: Apache-2.0
"""FLOOR_MOD of real numbers near multiples of the divisor, where one step more or less is a whole divisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from nn_runtime.errors import BadData
from tests.nn_runtime.tflite.operator_file import Array, Step, Tensor, constant, int32, real, reference, write

if TYPE_CHECKING:
    from nn_runtime.device import Device


def file_of(source: Tensor, divisor: Tensor) -> bytes:
    fed = [position for position, tensor in enumerate((source, divisor)) if tensor.data is None]
    return write([source, divisor, source], [Step("FLOOR_MOD", [0, 1], [2], "FloorModOptions")], fed, [2])


def around_multiples(divisor: Array) -> Array:
    """Return multiples and their neighbours, without denormals, which some devices take for 0."""
    multiples = np.arange(-999, 1000).astype(np.float32) * divisor
    ends = np.float32([0.0, 1e-30, -1e-30, np.inf, -np.inf, np.nan])
    found = np.concatenate([multiples, np.nextafter(multiples, np.inf), np.nextafter(multiples, -np.inf), ends])
    is_denormal = (found != 0) & (np.abs(found) < np.finfo(np.float32).smallest_normal)
    return found[~is_denormal].astype(np.float32)


@pytest.mark.parametrize("number", [0.7, -0.3, 6.2831855, -2.5, 1.0])
@pytest.mark.parametrize("kind", ["constant", "of the run"])
def test_near_multiples(number: float, kind: str, device: Device) -> None:
    divisor = np.float32([number])
    numbers = around_multiples(divisor)
    file = file_of(real(numbers.size), constant(divisor) if kind == "constant" else real(1))
    inputs = [numbers] if kind == "constant" else [numbers, divisor]
    with nn.load(file).compile(device) as session:
        result = session.run(inputs)[0]
    np.testing.assert_allclose(result, reference(file, inputs)[0], rtol=2.5e-7)


@pytest.mark.parametrize(
    ("source", "divisor", "message"),
    [
        (real(3), int32(3), "both inputs must be FLOAT32, or INT8, .*, got TENSOR_FLOAT32, TENSOR_INT32"),
        (real(3), constant([1.0, np.inf, 2.0]), r"input1 \(input 1\) must be finite"),
    ],
)
def test_other_divisors_are_refused(source: Tensor, divisor: Tensor, message: str) -> None:
    with pytest.raises(BadData, match=f"operator 0 FLOOR_MOD: {message}"):
        nn.load(file_of(source, divisor))

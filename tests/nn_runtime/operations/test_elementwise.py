# SPDX-License-Identifier: Apache-2.0
"""Fixed-point factors of quantised ADD, MUL and MEAN against real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.operations.elementwise import add_parameters, mul_multiplier
from nn_runtime.operations.reduce import mean_multiplier

if TYPE_CHECKING:
    from nn_runtime.quantization import FixedPointMultiplier


def real(multiplier: FixedPointMultiplier) -> float:
    return multiplier.mantissa * 2.0 ** (multiplier.exponent - 31)


def test_add_parameters() -> None:
    parameters = add_parameters(0.5, 0.125, 0.25)
    assert real(parameters.input0) == 0.5
    assert real(parameters.input1) == 0.125
    assert real(parameters.output) == 1.0 / 0.25 / 2**20


def test_mul_multiplier() -> None:
    assert real(mul_multiplier(0.5, 0.125, 0.25)) == 0.25


@pytest.mark.parametrize("count", [1, 2, 3, 49, 1000, 2**20 + 1])
def test_mean_multiplier_is_cut(count: int) -> None:
    found = real(mean_multiplier(count))
    assert 1 / count - 2.0**-29 / count < found <= 1 / count

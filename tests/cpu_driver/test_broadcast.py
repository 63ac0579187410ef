# SPDX-License-Identifier: Apache-2.0
"""Rows that are short reach numpy in long ones, and the results are those of numpy's own broadcasting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import nn_runtime as nn
from cpu_driver.operations.broadcast import broadcast

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions


@pytest.mark.parametrize(
    ("first", "second", "least_row"),
    [
        ((224, 224, 3), (3,), 2000),
        ((3,), (224, 224, 3), 2000),
        ((1, 1, 3), (96, 5, 3), 1000),
        ((1, 10, 6, 5), (6, 5), 300),
        ((7, 11, 13), (11, 13), 143),  # no number divides the rows
        ((8, 5000), (5000,), 5000),
        ((6, 4), (6, 1), 4),
        ((4, 6), (1, 1, 6), 6),
        ((4, 6), (4, 6), 6),
        ((4, 6), (1,), 6),
        ((4, 1), (1, 6), 6),
    ],
)
def test_rows(first: Dimensions, second: Dimensions, least_row: int) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal(first), rng.standard_normal(second)
    rows = []

    def subtract(some: Array, others: Array) -> Array:
        result: Array = some - others
        rows.append(result.shape[-1])
        return result

    result = broadcast(subtract, left, right)
    np.testing.assert_array_equal(result.reshape(-1), (left - right).reshape(-1))
    assert rows[0] >= least_row


@pytest.mark.parametrize("slope", [0.0, -2.0, np.inf, -np.inf, np.nan])
def test_prelu_of_any_numbers(slope: float) -> None:
    values = np.array([0.0, 1.5, np.inf, -1.5, -np.inf, np.nan], np.float32)
    model = nn.Model()
    source, alpha, result = (
        model.add_operand(nn.OperandType(nn.OperandCode.TENSOR_FLOAT32, (size,))) for size in (6, 1, 6)
    )
    model.set_operand_value(alpha, np.full(1, slope, np.float32))
    model.add_operation(nn.OperationCode.PRELU, [source, alpha], [result])
    model.identify_inputs_and_outputs([source], [result])
    model.finish()
    with nn.Network.from_model(model).compile("cpu") as session:
        got = session.run([values])[0]
    wanted = [value if value >= 0 else value * slope for value in values.tolist()]
    np.testing.assert_array_equal(got, np.array(wanted, np.float32))

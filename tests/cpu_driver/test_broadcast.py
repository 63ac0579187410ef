# SPDX-License-Identifier: Apache-2.0
"""Rows that are short reach numpy in long ones, and the results are those of numpy's own broadcasting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

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

# SPDX-License-Identifier: Apache-2.0
"""The 16-bit tables are close to the functions that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime.operations.fixed_point16 import high_product, logistic_table, tanh_table

CODES = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.float64)
WITHIN = 4e-4
"""Error of the algorithm, in parts of 1."""


def test_logistic_table() -> None:
    assert np.abs(logistic_table() / 2**15 - 1 / (1 + np.exp(-CODES / 2**12))).max() < WITHIN
    assert logistic_table()[0] == 1 << 14


@pytest.mark.parametrize("integer_bits", range(7))
def test_tanh_table(integer_bits: int) -> None:
    table = tanh_table(integer_bits).astype(np.int32)
    assert np.abs(table / 2**15 - np.tanh(CODES / 2 ** (15 - integer_bits))).max() < WITHIN
    assert table[0] == 0
    assert np.array_equal(table[1 : 1 << 15], -table[:0x8000:-1])


def test_high_product_rounds_ties_up() -> None:
    factors = np.array([1, 3, -1, -3])
    assert high_product(np.array([1 << 14] * 4), factors).tolist() == [1, 2, 0, -1]

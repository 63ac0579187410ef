# SPDX-License-Identifier: Apache-2.0
"""The fixed-point parts of quantised SOFTMAX against real numbers."""

from __future__ import annotations

import numpy as np

from nn_runtime.operations.softmax import softmax_reciprocal, softmax_tables


def test_exponentials_are_near_the_real_ones() -> None:
    tables = softmax_tables(1.0, 0.0625)
    wanted = np.exp(-0.0625 * np.arange(256))
    np.testing.assert_allclose(tables.exponentials / 2.0**31, wanted, atol=1e-6)
    np.testing.assert_allclose(tables.terms / 2.0**19, wanted, atol=2e-6)


def test_differences_beyond_32_are_dropped() -> None:
    tables = softmax_tables(1.0, 0.25)
    assert not tables.exponentials[125:].any()
    assert tables.exponentials[0] == 2**31 - 1


def test_reciprocal_of_every_length() -> None:
    sums = np.array([3 * 2**k + 1 for k in range(15, 37)])
    mantissas = sums / 2.0 ** np.floor(np.log2(sums))
    np.testing.assert_allclose(softmax_reciprocal(sums) / 2.0**31, 1 / mantissas, rtol=1e-7)

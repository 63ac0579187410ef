# SPDX-License-Identifier: Apache-2.0
"""1 / sqrt in fixed point against float64, over the whole range."""

from __future__ import annotations

import numpy as np

from nn_runtime.quantization import inverse_sqrt_multipliers


def test_relative_error_is_below_two_millionths() -> None:
    values = np.unique(np.concatenate([np.arange(1, 5000), np.geomspace(5000, 2**31 - 1, 20000).astype(np.int64)]))
    mantissas, shifts = inverse_sqrt_multipliers(values)
    assert mantissas.min() > 0
    assert mantissas.max() < 2**31
    real = mantissas * 2.0 ** -(31 + shifts)
    assert np.abs(real * np.sqrt(values) - 1).max() < 2e-6


def test_zero_counts_as_one() -> None:
    mantissas, shifts = inverse_sqrt_multipliers(np.array([0, 1]))
    assert mantissas.tolist() == [2**31 - 1] * 2
    assert shifts.tolist() == [0, 0]

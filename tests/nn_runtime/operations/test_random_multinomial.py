# SPDX-License-Identifier: Apache-2.0
"""The random numbers are those of Philox 4x32-10, and lie evenly in [0, 1)."""

from __future__ import annotations

import numpy as np

from nn_runtime.operations.random_multinomial import philox_words, uniform_doubles


def test_known_answer() -> None:
    assert [f"{word:08x}" for word in philox_words(0, 0, 1)] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_each_block_has_its_own_words() -> None:
    words = philox_words(37, 42, 100)
    assert np.unique(words).size == 400
    assert np.array_equal(philox_words(37, 42, 3), words[:12])
    assert not np.array_equal(philox_words(-37, 42, 3), words[:12])


def test_uniform_doubles() -> None:
    numbers = uniform_doubles(1, 2, 4001)
    assert numbers.shape == (4001,)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert np.abs(np.histogram(numbers, 4, (0, 1))[0] / 4001 - 0.25).max() < 0.03

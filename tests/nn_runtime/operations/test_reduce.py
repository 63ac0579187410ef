# SPDX-License-Identifier: Apache-2.0
"""Dimensions as reductions see them."""

from __future__ import annotations

import pytest

from nn_runtime.operations.reduce import merged_axes


@pytest.mark.parametrize(
    ("dims", "axes", "merged", "reduced"),
    [
        ((2, 3, 4, 5), [1, 2], (2, 12, 5), [1]),
        ((2, 3, 4, 5), [0, 2], (2, 3, 4, 5), [0, 2]),
        ((2, 3, 4, 5), [0, 1, 2, 3], (120,), [0]),
        ((1, 64, 256), [0, 2], (64, 256), [1]),
        ((64, 1, 7), [1], (448,), []),
        ((3, 1, 5), [0, 2], (15,), [0]),
        ((1, 1), [0], (1, 1), [0]),
        ((1, 1), [0, 1], (1,), [0]),
        ((0, 1, 2), [1, 2], (0, 2), [1]),
    ],
)
def test_neighbours_are_put_together(
    dims: tuple[int, ...], axes: list[int], merged: tuple[int, ...], reduced: list[int]
) -> None:
    assert merged_axes(dims, axes) == (merged, reduced)

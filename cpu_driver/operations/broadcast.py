# SPDX-License-Identifier: Apache-2.0
"""Functions of two broadcast arrays, with long rows for numpy's loops."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.channel_rows import repeats_of_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array, Dimensions

_ROW_ELEMENTS = 1 << 12
"""Shorter rows are repeated: numpy begins a loop for each."""


def broadcast(function: Callable[[Array, Array], Array], first: Array, second: Array) -> Array:
    """Return an elementwise function of two arrays that numpy's rules broadcast.

    One that is a row of the other, such as a bias, is handed over many times in one.
    """
    if second.size < first.size:
        repeats = _repeats(first.shape, second.shape)
        if repeats > 1:
            return function(first.reshape(-1, repeats * second.size), _row(second, repeats)).reshape(first.shape)
    else:
        repeats = _repeats(second.shape, first.shape)
        if repeats > 1:
            return function(_row(first, repeats), second.reshape(-1, repeats * first.size)).reshape(second.shape)
    return function(first, second)


def _row(values: Array, repeats: int) -> Array:
    return np.tile(values.reshape(-1), repeats)


def _repeats(shape: Dimensions, of_row: Dimensions) -> int:
    """Return how often an array may be repeated in a row of another; once if it is not the other's last dimensions."""
    row = tuple(itertools.dropwhile(lambda size: size == 1, of_row))
    if not row or len(of_row) > len(shape) or shape[-len(row) :] != row:
        return 1
    return repeats_of_row(math.prod(shape[: -len(row)]), _ROW_ELEMENTS // math.prod(row))

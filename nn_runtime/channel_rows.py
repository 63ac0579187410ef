# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of arrays whose last axis is channels with constants by channel, in pieces that stay in the cache."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.operand import Array

_PIECE_BYTES = 1 << 19
"""What is computed at a time, so that the temporaries stay in the cache."""
_ROW_BYTES = 1 << 15


def repeats_of_row(rows: int, most: int) -> int:
    """Return how many of so many equal rows become one: the greatest number up to `most` that leaves none over."""
    return next(count for count in range(max(1, most), 0, -1) if rows % count == 0)


class ChannelRows:
    """Constants by channel, repeated because numpy is slow with short rows; one number where all are equal."""

    def __init__(self, *constants: Array) -> None:
        """Take arrays of one type and size."""
        self._channels, self._itemsize = max(1, constants[0].size), constants[0].itemsize
        self._constants = [one[:1] if np.all(one == one[:1]) else one for one in constants]
        self._repeated = functools.lru_cache(maxsize=4)(self._repeat)

    def pieces(self, values: Array, results: Array) -> Iterator[tuple[Array, Array, Sequence[Array]]]:
        """Yield parts of values and results [rows, width] that fit the cache, with the constants of a row [width]."""
        width, constants = self._repeated(values.size // self._channels)
        rows, out = values.reshape(-1, width), results.reshape(-1, width)
        step = max(1, _PIECE_BYTES // self._itemsize // width)
        for start in range(0, len(rows), step):
            yield rows[start : start + step], out[start : start + step], constants

    def _repeat(self, pixels: int) -> tuple[int, Sequence[Array]]:
        """Return the width of rows for so many pixels, and the constants of a row."""
        repeats = repeats_of_row(pixels, _ROW_BYTES // self._itemsize // self._channels)
        return repeats * self._channels, [one if one.size == 1 else np.tile(one, repeats) for one in self._constants]

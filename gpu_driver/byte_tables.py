# SPDX-License-Identifier: Apache-2.0
"""Tables of 256 bytes as common/bytes.h looks them up: 64 bytes at once, by instructions that pick among some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nn_runtime.operand import Array

PART = 16
_PARTS_THAT_COUNT = 8
"""A byte minus 16 for each part before has its highest bit clear for so many parts, and picks from each of them."""
_GROUPS = 4


def packed(table: Array) -> Array:
    """Return the sixteen parts of a table [16, 64] and, behind them, the table as it is [4, 64]: a device needs either.

    The exclusive or of the parts that count for a byte is what the table has for it.
    """
    wanted = table.view(np.uint8).reshape(PART, PART)
    parts = wanted.copy()
    for at in range(1, PART):
        parts[at] ^= wanted[at - 1]
        if at >= _PARTS_THAT_COUNT:
            parts[at] ^= parts[at - _PARTS_THAT_COUNT]
    return np.concatenate([np.tile(parts, (1, _GROUPS)), wanted.reshape(_GROUPS, -1)])

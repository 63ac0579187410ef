# SPDX-License-Identifier: Apache-2.0
"""Tables of 256 bytes as common/bytes.h looks them up: 64 bytes at once, by instructions that pick among sixteen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nn_runtime.operand import Array

PART = 16
_PARTS_THAT_COUNT = 8
"""A byte minus 16 for each part before has its highest bit clear for so many parts, and picks from each of them."""
_GROUPS = 4


def parts(table: Array) -> Array:
    """Return sixteen parts [16, 64]: the exclusive or of those that count for a byte is what the table has for it."""
    wanted = table.view(np.uint8).reshape(PART, PART)
    result = wanted.copy()
    for at in range(1, PART):
        result[at] ^= wanted[at - 1]
        if at >= _PARTS_THAT_COUNT:
            result[at] ^= result[at - _PARTS_THAT_COUNT]
    return np.tile(result, (1, _GROUPS))

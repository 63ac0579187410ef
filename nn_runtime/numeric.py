# SPDX-License-Identifier: Apache-2.0
"""Numbers as operands carry them: whole ones, and exact float32 values."""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, SupportsIndex

from nn_runtime.errors import BadData

if TYPE_CHECKING:
    from collections.abc import Iterable

_FLOAT32 = struct.Struct("<f")


def whole(what: str, value: SupportsIndex) -> int:
    """Return an integer of any kind (Python's, numpy's) as an int; raises BadData for everything else."""
    try:
        return operator.index(value)
    except TypeError:
        raise BadData(f"{what}: wanted a whole number, got {value!r}") from None


def whole_numbers(what: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return any sequence of integers as a tuple; raises BadData for everything else."""
    try:
        listed = tuple(values)
    except TypeError:
        raise BadData(f"{what}: wanted a sequence of whole numbers, got {values!r}") from None
    return tuple(whole(what, value) for value in listed)


def float32(what: str, value: float) -> float:
    """Return the nearest float32 value, also of an infinity or NaN; raises BadData for what float32 cannot hold."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except (OverflowError, TypeError, struct.error):
        raise BadData(f"{what}: wanted a number that float32 can hold, got {value!r}") from None
    return rounded

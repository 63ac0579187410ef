# SPDX-License-Identifier: Apache-2.0
"""Options of custom operators: FlexBuffer maps, or structures of TFLite's C interface."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from flatbuffers import flexbuffers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from nn_runtime.tflite.operator import Operator

    T = TypeVar("T")

SAME, VALID = 1, 2
"""Paddings in structures."""


def numbers(op: Operator, names: Sequence[str]) -> dict[str, float]:
    """Return what the options say of these names; raises BadData where that is no number or cannot be read."""

    def read(entries: flexbuffers.Map) -> dict[str, float]:
        found = {name: _entry(entries, name) for name in names}
        return {name: _number(entry, name) for name, entry in found.items() if entry is not None}

    return _read(op, read)


def integers(op: Operator, name: str) -> list[int]:
    """Return the numbers of a list, which is empty where the options do not have it; raises BadData."""

    def read(entries: flexbuffers.Map) -> list[int]:
        entry = _entry(entries, name)
        if entry is None:
            return []
        if not (entry.IsVector or entry.IsTypedVector):
            raise TypeError(f"{name} must be a list")
        items = entry.AsVector if entry.IsVector else entry.AsTypedVector
        return [int(_number(item, name)) for item in items]

    return _read(op, read)


def structure(op: Operator, names: Sequence[str]) -> list[int]:
    """Return the members of a structure of integers, the first of which have these names, and check them.

    `padding` must be SAME or VALID, the other named ones > 0; raises BadData.
    """
    content = op.custom_options
    if content.size < 4 * len(names) or content.size % 4:
        op.fail(f"options must be {', '.join(names)}, each of 4 bytes, got {content.size} bytes")
    members: list[int] = content.view("<i4").tolist()
    for name, member in zip(names, members, strict=False):
        if name == "padding" and member not in (SAME, VALID):
            op.fail(f"padding must be {SAME} (SAME) or {VALID} (VALID), got {member}")
        if member < 1:
            op.fail(f"{name} must be > 0, got {member}")
    return members


def _read(op: Operator, read: Callable[[flexbuffers.Map], T]) -> T:
    content = op.custom_options.tobytes()
    try:
        return read(flexbuffers.GetRoot(content).AsMap)
    # The reader slices Python bytes, so that it cannot leave them, but damage shows as any of these.
    except (ValueError, LookupError, TypeError, OverflowError, struct.error) as error:
        op.fail(f"the options cannot be read: {error}")


def _entry(entries: flexbuffers.Map, name: str) -> flexbuffers.Ref | None:
    try:
        return entries[name]
    except KeyError:
        return None


def _number(entry: flexbuffers.Ref, name: str) -> float:
    if not (entry.IsNumeric or entry.IsBool):
        raise TypeError(f"{name} must be a number")
    return float(entry.AsFloat if entry.IsFloat else entry.AsInt)

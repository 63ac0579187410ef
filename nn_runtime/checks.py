# SPDX-License-Identifier: Apache-2.0
"""Checks of what Python lets a caller hand over in place of an object of ours: the NDK has types for that."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING

from nn_runtime.errors import BadData, UnexpectedNull

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import IntEnum
    from typing import SupportsIndex, TypeVar

    T = TypeVar("T")
    E = TypeVar("E", bound=IntEnum)

_PLAIN = (str, bytes, int, float, tuple, list)


def check_kind(what: str, value: object, kind: type) -> None:
    """Check that an argument is an object of a class; raises UnexpectedNull for None, BadData for all else."""
    if value is None:
        raise UnexpectedNull(f"{what} is None")
    if not isinstance(value, kind):
        raise BadData(f"{what}: wanted {with_article(kind.__name__)}, got {shown(value)}")


def listed(what: str, values: Iterable[T], kind: type) -> list[T]:
    """Return the objects of a class in any sequence; raises UnexpectedNull, BadData as `check_kind`."""
    if values is None:
        raise UnexpectedNull(f"{what} is None")
    if isinstance(values, str | bytes):
        raise BadData(f"{what}: wanted a list, got {values!r}")
    try:
        found = list(values)
    except TypeError:
        raise BadData(f"{what}: wanted a list, got {shown(values)}") from None
    for at, value in enumerate(found):
        check_kind(f"{what} {at}", value, kind)
    return found


def member(what: str, value: SupportsIndex, kind: type[E]) -> E:
    """Return the member of an enumeration of codes that a number is; raises BadData that names those there are."""
    try:
        return kind(operator.index(value))
    except (TypeError, ValueError):
        known = ", ".join(f"{name} ({one:d})" for name, one in kind.__members__.items())
        raise BadData(f"{what}: wanted one of {kind.__name__}: {known}, got {shown(value)}") from None


def flag(what: str, value: object) -> bool:
    """Return whether a value is true; raises BadData for what is neither."""
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise BadData(f"{what}: wanted True or False, got {shown(value)}") from None


def copied_bytes(what: str, data: bytes) -> bytes:
    """Return a copy of any buffer's bytes; raises UnexpectedNull, and BadData for what has no bytes."""
    if data is None:
        raise UnexpectedNull(f"{what} is None")
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise BadData(f"{what}: wanted bytes, got {shown(data)}") from None


def shown(value: object) -> str:
    """Return a short text for a value of any kind: itself where that says more than its class."""
    return repr(value) if isinstance(value, _PLAIN) else type(value).__name__


def path_shown(path: str | os.PathLike[str]) -> str:
    """Return a path as it stands in a message: itself, unless it has what a terminal would obey."""
    text = os.fsdecode(path)
    return text if text.isprintable() else repr(text)


def with_article(name: str) -> str:
    """Return a class's name as it stands in a sentence."""
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"

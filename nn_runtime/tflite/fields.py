# SPDX-License-Identifier: Apache-2.0
"""Kinds of fields that the tables of a .tflite file have, as FlatBuffers stores them."""

from __future__ import annotations

import struct
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Scalar:
    """A number stored in the table itself, and what it is where the table leaves it out."""

    format: struct.Struct
    default: float = 0

    def but(self, default: float) -> Scalar:
        """Return it with another default."""
        return replace(self, default=default)


@dataclass(frozen=True)
class Vector:
    """A vector of numbers; `in_place` means it is never copied, so its length costs nothing."""

    item: np.dtype[np.generic]
    in_place: bool = False


@dataclass(frozen=True)
class String:
    """Bytes with a length, meant as UTF-8."""


@dataclass(frozen=True)
class Child:
    """One table."""

    table: Table


@dataclass(frozen=True)
class Children:
    """A vector of tables."""

    table: Table


@dataclass(frozen=True)
class Union:
    """One table of several kinds; the field before it is the tag, 0 for none."""

    variants: Mapping[int, Table]


Kind: TypeAlias = Scalar | Vector | String | Child | Children | Union


@dataclass(frozen=True)
class Field:
    """A field of a table: `slot` is the byte offset of its entry in the vtable."""

    name: str
    slot: int
    kind: Kind


@dataclass(frozen=True)
class Table:
    """A table: its name in the schema and the fields that are read.

    defaults: what the fields hold that a table leaves out; nothing for other tables.
    """

    name: str
    fields: tuple[Field, ...]
    defaults: Mapping[str, object] = field(repr=False, compare=False)


SKIP = None
INT8, UINT8, INT32, UINT32 = (Scalar(struct.Struct(code)) for code in ("b", "B", "<i", "<I"))
INT64, UINT64 = (Scalar(struct.Struct(code)) for code in ("<q", "<Q"))
BOOL, FLOAT32 = Scalar(struct.Struct("?"), False), Scalar(struct.Struct("<f"), 0.0)
INT32S, FLOAT32S, INT64S = (Vector(np.dtype(f"<{code}")) for code in ("i4", "f4", "i8"))
UINT16S, UINT8S = (Vector(np.dtype(code)) for code in ("<u2", "u1"))
BLOB = Vector(np.dtype("u1"), in_place=True)
STRING = String()


def table(name: str, /, **kinds: Kind | None) -> Table:
    """Build a table from its fields in slot order."""
    fields = tuple(
        Field(field, 4 + 2 * index, kind) for index, (field, kind) in enumerate(kinds.items()) if kind is not None
    )
    return Table(name, fields, {one.name: _default(one.kind) for one in fields})


def _default(kind: Kind) -> object:
    match kind:
        case Scalar():
            return kind.default
        case Vector():
            return np.empty(0, kind.item)
        case String():
            return b""
        case Children():
            return ()
        case _:
            return None

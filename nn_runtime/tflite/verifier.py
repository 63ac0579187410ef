# SPDX-License-Identifier: Apache-2.0
"""Bounds checks of a .tflite file before any accessor touches it.

The FlatBuffers runtime for Python follows offsets unchecked. The verifier walks every field of `schema` from the root
and checks alignment, bounds and vector lengths, so that later accesses stay inside the file. Depth is bounded by the
schema, which has no recursive table. Tables may overlap or be shared, but the work stays bounded: the number of table
visits by `MAX_TABLES`, the bytes of all vectors and strings that the reader copies by a multiple of the file's length.
"""

from __future__ import annotations

import struct

from nn_runtime.errors import BadData
from nn_runtime.tflite.schema import Child, Children, Field, Kind, Scalar, String, Table, Union, Vector

IDENTIFIER = b"TFL3"
HEADER_BYTES = 8
# Real networks have about ten tables an operator, so this is room for 13,000 operators.
MAX_TABLES = 1 << 17
MAX_COPIES_OF_FILE = 4
FREE_COPY_BYTES = 1 << 20

_UINT16 = struct.Struct("<H")
_VTABLE = struct.Struct("<HH")
_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")


class TfliteError(BadData):
    """A .tflite file that is damaged, hostile or uses what this reader does not know."""


def verify(data: bytes, root: Table) -> int:
    """Check a whole file; return the end of its tables in bytes. TfliteError says what is wrong and where."""
    if len(data) < HEADER_BYTES:
        raise TfliteError(f"not a .tflite file: needs at least {HEADER_BYTES} bytes, got {len(data)}")
    if data[4:8] != IDENTIFIER:
        raise TfliteError(f"not a .tflite file: bytes 4 to 7 must be {IDENTIFIER!r}, got {data[4:8]!r}")
    return _Verifier(data).walk(root)


class _Verifier:
    """One walk over one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = HEADER_BYTES
        self._tables_left = MAX_TABLES
        self._copy_bytes_left = FREE_COPY_BYTES + MAX_COPIES_OF_FILE * len(data)

    def walk(self, root: Table) -> int:
        """Verify everything below the root table and return the end of the last byte seen."""
        self._count_tables(1, "root")
        self._table(root, self._target(0, "root"), root.name)
        return self._end

    def _span(self, start: int, size: int, alignment: int, where: str) -> None:
        """Require [start, start + size) aligned and inside the file."""
        if start % alignment:
            raise TfliteError(f"{where}: offset must be a multiple of {alignment}, got {start}")
        if start < 0 or start + size > len(self._data):
            raise TfliteError(
                f"{where}: {size} bytes at offset {start} are not inside the file of {len(self._data)} bytes"
            )
        self._end = max(self._end, start + size)

    def _count_tables(self, count: int, where: str) -> None:
        """Spend `count` of the table visits."""
        self._tables_left -= count
        if self._tables_left < 0:
            raise TfliteError(f"{where}: more than {MAX_TABLES} tables in the file")

    def _count_bytes(self, count: int, where: str) -> None:
        """Spend `count` of the bytes that may be copied."""
        self._copy_bytes_left -= count
        if self._copy_bytes_left < 0:
            raise TfliteError(
                f"{where}: overlapping vectors add up to more than {MAX_COPIES_OF_FILE} times the file's length"
            )

    def _target(self, position: int, where: str) -> int:
        """Return where the unsigned offset at `position` points."""
        offset: int = _UINT32.unpack_from(self._data, position)[0]
        if offset == 0:
            raise TfliteError(f"{where}: offset at {position} must not be 0")
        return position + offset

    def _table(self, table: Table, start: int, where: str) -> None:
        """Verify a table, its vtable and the fields that the schema names."""
        vtable, vtable_size, table_size = self._layout(start, where)
        tag = 0
        for field in table.fields:
            offset = _UINT16.unpack_from(self._data, vtable + field.slot)[0] if field.slot < vtable_size else 0
            kind = field.kind
            if isinstance(kind, Union):
                self._check_tag(kind, tag, offset, f"{where}.{field.name}")
            if offset == 0:
                tag = 0
                continue
            size = kind.size if isinstance(kind, Scalar) else 4
            if offset < 4 or offset + size > table_size or (start + offset) % size:
                raise TfliteError(
                    f"{where}.{field.name}: {size} aligned bytes must lie in bytes 4 to {table_size} "
                    f"of the table at {start}, got offset {offset}"
                )
            if isinstance(kind, Scalar):
                tag = self._data[start + offset]
            else:
                self._reference(field, kind, start + offset, tag, where)

    def _layout(self, start: int, where: str) -> tuple[int, int, int]:
        """Verify the extent of a table and its vtable; return the vtable's position, its length and the table's."""
        self._span(start, 4, 4, where)
        vtable = start - _INT32.unpack_from(self._data, start)[0]
        self._span(vtable, 4, 2, f"{where} (vtable)")
        vtable_size, table_size = _VTABLE.unpack_from(self._data, vtable)
        if vtable_size < 4 or vtable_size % 2 or table_size < 4:
            raise TfliteError(
                f"{where} (vtable): lengths must be at least 4, the vtable's even, got {vtable_size} and {table_size}"
            )
        self._span(vtable, vtable_size, 2, f"{where} (vtable)")
        self._span(start, table_size, 4, where)
        return vtable, vtable_size, table_size

    def _check_tag(self, union: Union, tag: int, offset: int, where: str) -> None:
        """Require a known tag, and a value exactly where there is a tag."""
        if tag and tag not in union.variants:
            raise TfliteError(f"{where}: type must be one of 0 to {max(union.variants)}, got {tag}")
        if bool(tag) != bool(offset):
            found = "none" if tag else "a table"
            raise TfliteError(f"{where}: type {tag} wants {'a table' if tag else 'none'}, got {found}")

    def _reference(self, field: Field, kind: Kind, position: int, tag: int, parent: str) -> None:
        """Verify what the offset stored at `position` points to."""
        where = f"{parent}.{field.name}"
        start = self._target(position, where)
        match kind:
            case Vector():
                length = self._vector(start, kind.item_size, where)
                if not kind.in_place:
                    self._count_bytes(length * kind.item_size, where)
            case String():
                self._count_bytes(self._vector(start, 1, where), where)
            case Child():
                self._count_tables(1, where)
                self._table(kind.table, start, where)
            case Children():
                self._children(kind.table, start, where)
            case Union():
                self._count_tables(1, where)
                self._table(kind.variants[tag], start, where)

    def _vector(self, start: int, item_size: int, where: str) -> int:
        """Verify a vector's header and extent; return its length."""
        self._span(start, 4, 4, where)
        length: int = _UINT32.unpack_from(self._data, start)[0]
        self._span(start + 4, length * item_size, item_size if length else 1, where)
        return length

    def _children(self, table: Table, start: int, where: str) -> None:
        """Verify a vector of tables."""
        length = self._vector(start, 4, where)
        self._count_tables(length, where)
        for index in range(length):
            item = f"{where}[{index}]"
            self._table(table, self._target(start + 4 + 4 * index, item), item)

# SPDX-License-Identifier: Apache-2.0
"""Turn the tables of a .tflite file into records, each field checked before it is read.

The decoder walks every field of `schema` from the root and checks alignment, bounds and vector lengths, so that nothing
outside the file is read. (The FlatBuffers runtime for Python follows offsets unchecked, and needs a module for each of
188 tables.) Depth is bounded by the schema, which has no recursive table. Tables may overlap or be shared, but the work
stays bounded: the number of table visits by `MAX_TABLES`, the bytes of all vectors and strings that the reader copies
by a multiple of the file's length.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import BadData
from nn_runtime.tflite.fields import Child, Children, Field, Kind, Scalar, String, Table, Union, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy.typing as npt

IDENTIFIER = b"TFL3"
HEADER_BYTES = 8
_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"\0\0PK\x03\x04": "a bundle of MediaPipe tasks: unpack it first, as a zip archive",
    b"\x1f\x8b": "one compressed by gzip: unpack it first",
    b"\x89HDF": "an HDF5 file, as Keras writes: convert it first",
    b"version https://git-lfs": "what Git LFS has in the place of a file: `git lfs pull` brings that",
    b"<!doctype": "a page of the web",
    b"<html": "a page of the web",
}
"""What is given for a network by mistake, by its first bytes, in capitals or not."""
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


class Record:
    """The fields of one table by their names in the schema; those that the table leaves out have their defaults."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Take a value for every field: a number, an array, bytes, a record or None, or records."""
        self._values = values

    def number(self, name: str) -> int:
        """Return an integer."""
        number: int = self._values[name]
        return number

    def scalar(self, name: str) -> int | float | bool:
        """Return a number of any kind."""
        number: int | float | bool = self._values[name]
        return number

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a vector of numbers as a read-only view of the file."""
        numbers: npt.NDArray[Any] = self._values[name]
        return numbers

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a vector of integers, copied."""
        return tuple(self.numbers(name).tolist())

    def text(self, name: str) -> str:
        """Return a string; bytes that are not UTF-8 become U+FFFD."""
        characters: bytes = self._values[name]
        return characters.decode("utf-8", "replace")

    def record(self, name: str) -> Record | None:
        """Return the record of a table, None where there is none."""
        record: Record | None = self._values[name]
        return record

    def records(self, name: str) -> Sequence[Record]:
        """Return the records of a vector of tables."""
        records: Sequence[Record] = self._values[name]
        return records


def decode(data: bytes, root: Table) -> tuple[Record, int]:
    """Decode a whole file; return its root and the end of its tables in bytes.

    TfliteError says what is wrong and where.
    """
    if len(data) < HEADER_BYTES:
        raise TfliteError(f"not a .tflite file: needs at least {HEADER_BYTES} bytes, got {len(data)}")
    if data[4:8] != IDENTIFIER:
        others = [kind for begin, kind in _OTHER_FILES.items() if data[: len(begin)].lower() == begin.lower()]
        looks = f"; it looks like {others[0]}" if others else ""
        raise TfliteError(f"not a .tflite file: bytes 4 to 7 must be {IDENTIFIER!r}, got {data[4:8]!r}{looks}")
    decoder = _Decoder(data)
    return decoder.root(root), decoder.end


class _Decoder:
    """One walk over one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.end = HEADER_BYTES
        """The end of the last byte seen."""
        self._tables_left = MAX_TABLES
        self._copy_bytes_left = FREE_COPY_BYTES + MAX_COPIES_OF_FILE * len(data)
        self._decoded: dict[tuple[int, int], tuple[Record, int, int]] = {}
        """By kind and place: the record, and the tables and bytes that it cost."""

    def root(self, table: Table) -> Record:
        """Decode the root table and everything below it."""
        self._count_tables(1, "root")
        return self._table(table, self._target(0, "root"), table.name)

    def _span(self, start: int, size: int, alignment: int, where: str) -> None:
        """Require [start, start + size) aligned and inside the file."""
        if start % alignment:
            raise TfliteError(f"{where}: offset must be a multiple of {alignment}, got {start}")
        if start < 0 or start + size > len(self._data):
            raise TfliteError(
                f"{where}: {size} bytes at offset {start} are not inside the file of {len(self._data)} bytes, which is "
                "cut off or damaged"
            )
        self.end = max(self.end, start + size)

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

    def _table(self, table: Table, start: int, where: str) -> Record:
        """Decode a table; one that is shared is one record, and costs as much again, as readers go through it again."""
        found = self._decoded.get((id(table), start))
        if found is not None:
            record, tables, copied = found
            self._count_tables(tables, where)
            self._count_bytes(copied, where)
            return record
        tables_left, bytes_left = self._tables_left, self._copy_bytes_left
        record = self._fields(table, start, where)
        self._decoded[id(table), start] = record, tables_left - self._tables_left, bytes_left - self._copy_bytes_left
        return record

    def _fields(self, table: Table, start: int, where: str) -> Record:
        """Decode a table's vtable and the fields that the schema names."""
        vtable, vtable_size, table_size = self._layout(start, where)
        values = dict(table.defaults)
        tag = 0
        for field in table.fields:
            offset = _UINT16.unpack_from(self._data, vtable + field.slot)[0] if field.slot < vtable_size else 0
            kind = field.kind
            if isinstance(kind, Union):
                self._check_tag(kind, tag, offset, f"{where}.{field.name}")
            if offset == 0:
                tag = 0
                continue
            size = kind.format.size if isinstance(kind, Scalar) else 4
            if offset < 4 or offset + size > table_size or (start + offset) % size:
                raise TfliteError(
                    f"{where}.{field.name}: {size} aligned bytes must lie in bytes 4 to {table_size} "
                    f"of the table at {start}, got offset {offset}"
                )
            if isinstance(kind, Scalar):
                values[field.name] = tag = kind.format.unpack_from(self._data, start + offset)[0]
            else:
                values[field.name] = self._reference(field, kind, start + offset, tag, where)
        return Record(values)

    def _layout(self, start: int, where: str) -> tuple[int, int, int]:
        """Check the extent of a table and its vtable; return the vtable's position, its length and the table's."""
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

    def _reference(self, field: Field, kind: Kind, position: int, tag: int, parent: str) -> object:
        """Decode what the offset stored at `position` points to."""
        where = f"{parent}.{field.name}"
        start = self._target(position, where)
        match kind:
            case Vector():
                return self._numbers(kind, start, where)
            case String():
                length = self._vector(start, 1, where)
                self._count_bytes(length, where)
                return self._data[start + 4 : start + 4 + length]
            case Child():
                return self._child(kind.table, start, where)
            case Children():
                return self._children(kind.table, start, where)
            case Union():
                return self._child(kind.variants[tag], start, where)
        raise AssertionError(f"{where}: a {type(kind).__name__} is no reference")

    def _vector(self, start: int, item_size: int, where: str) -> int:
        """Check a vector's header and extent; return its length."""
        self._span(start, 4, 4, where)
        length: int = _UINT32.unpack_from(self._data, start)[0]
        self._span(start + 4, length * item_size, item_size if length else 1, where)
        return length

    def _numbers(self, kind: Vector, start: int, where: str) -> npt.NDArray[np.generic]:
        """Decode a vector of numbers, as a view of the file."""
        length = self._vector(start, kind.item.itemsize, where)
        if not kind.in_place:
            self._count_bytes(length * kind.item.itemsize, where)
        return np.frombuffer(self._data, kind.item, length, start + 4) if length else np.empty(0, kind.item)

    def _child(self, table: Table, start: int, where: str) -> Record:
        self._count_tables(1, where)
        return self._table(table, start, where)

    def _children(self, table: Table, start: int, where: str) -> list[Record]:
        """Decode a vector of tables."""
        length = self._vector(start, 4, where)
        self._count_tables(length, where)
        records = []
        for index in range(length):
            item = f"{where}[{index}]"
            records.append(self._table(table, self._target(start + 4 + 4 * index, item), item))
        return records

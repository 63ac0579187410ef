# SPDX-License-Identifier: Apache-2.0
"""Small files that ask for much work, and damaged bytes: refused, or read without harm."""

from __future__ import annotations

import random
import re
import struct
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import tflite

from nn_runtime.tflite import TfliteError, read, schema
from nn_runtime.tflite.decoder import MAX_TABLES, decode
from tests.nn_runtime.tflite.sample_file import changed, refused, sample, set_subgraph
from tests.nn_runtime.tflite.tflite_file import (
    FileSpec,
    OperatorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_too_many_operators() -> None:
    operator = OperatorSpec(0, (), ())
    refused(changed(set_subgraph(operators=[operator] * (MAX_TABLES + 1))), f"operators: more than {MAX_TABLES} tables")


def test_shared_tables_multiply() -> None:
    def change(file: FileSpec) -> None:
        file.subgraphs[0].operators = [OperatorSpec(0, (), ())] * 1000
        file.subgraphs = file.subgraphs * 1000

    refused(changed(change), f"more than {MAX_TABLES} tables")


def test_shared_tables_are_one_record() -> None:
    def change(file: FileSpec) -> None:
        file.subgraphs[0].operators = [OperatorSpec(0, (), ())] * 1000
        file.subgraphs = file.subgraphs * 100

    model, _ = decode(changed(change), schema.MODEL)
    subgraphs = model.records("subgraphs")
    assert len(subgraphs) == 100
    assert len({id(subgraph) for subgraph in subgraphs}) == 1
    assert len({id(operator) for operator in subgraphs[0].records("operators")}) == 1


def test_shared_vectors_multiply() -> None:
    inputs = (0,) * 100_000
    operators = [OperatorSpec(0, inputs, ()) for _ in range(1000)]
    refused(changed(set_subgraph(operators=operators)), "overlapping vectors add up")


def root_of(vtable_size: int, table_size: int) -> bytes:
    """Return a file of 20 bytes: a vtable at 8, the root at 16."""
    return struct.pack("<I4sHHIi", 16, b"TFL3", vtable_size, table_size, 0, 8)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", "not a .tflite file: needs at least 8 bytes, got 0"),
        (b"\x18\0\0\0TFL", "needs at least 8 bytes, got 7"),
        (b"\x18\0\0\0TFL3", "4 bytes at offset 24 are not inside the file of 8 bytes, which is cut off or damaged"),
        (b"\xff\xff\xff\xffTFL3", "Model: offset must be a multiple of 4"),
        (b"\xfc\xff\xff\xffTFL3", "Model: 4 bytes at offset 4294967292 are not inside"),
        (b"\0\0\0\0TFL3", "root: offset at 0 must not be 0"),
        (b"\x08\0\0\0TFL3\0\0\0\0", "lengths must be at least 4"),
        (b"four or more", "not a .tflite file: bytes 4 to 7 must be b'TFL3', got b' or '"),
        (b"PK\x03\x04" + bytes(100), "; it looks like a zip archive: unpack it first"),
        (b"\0\0PK\x03\x04" + bytes(100), "; it looks like a bundle of MediaPipe tasks"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "it looks like one compressed by gzip"),
        (b"\x89HDF\r\n\x1a\n", "it looks like an HDF5 file, as Keras writes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "in the place of a file: `git lfs pull`"),
        (b"<!DOCTYPE html><html></html>", "it looks like a page of the web"),
        *(
            (
                root_of(*sizes),
                f"Model (vtable): lengths must be at least 4, the vtable's even, got {sizes[0]} and {sizes[1]}",
            )
            for sizes in ((5, 4), (2, 4), (4, 3))
        ),
        (root_of(4, 5), "Model: 5 bytes at offset 16 are not inside the file of 20 bytes, which is cut off or damaged"),
        (root_of(14, 4), "Model (vtable): 14 bytes at offset 8 are not inside the file of 20 bytes"),
        (root_of(4, 4), "schema version must be 3, got 0"),
        (b"\x08\0\0\0TFL3\x10\0\0\0", r"Model \(vtable\): 4 bytes at offset -8 are not inside"),
        (b"\x08\0\0\0TFL3\x00\0\0\x80", r"Model \(vtable\): 4 bytes at offset 2147483656 are not inside"),
    ],
)
def test_not_a_file(data: bytes, wanted: str) -> None:
    refused(data, re.escape(wanted) if "\\" not in wanted else wanted)


def field_position(table: Any, name: str, field: str) -> int:
    """Where the file stores a field of a table."""
    described = {item.name: item for item in vars(schema)[name].fields}[field]
    offset: int = table._tab.Offset(described.slot)
    assert offset
    return int(table._tab.Pos + offset)


def patched(place: Callable[[Any], int], form: str, value: int) -> bytes:
    """Write the sample with one number overwritten at a place found from its root table."""
    data = bytearray(sample().write())
    struct.pack_into(form, data, place(tflite.Model.GetRootAs(bytes(data))), value)
    return bytes(data)


def vector_of_inputs(model: Any) -> int:
    position = field_position(model.Subgraphs(0).Operators(0), "OPERATOR", "inputs")
    return int(model._tab.Indirect(position))


def vtable(model: Any) -> int:
    tensor = model.Subgraphs(0).Tensors(1)
    return int(tensor._tab.Pos - struct.unpack_from("<i", tensor._tab.Bytes, tensor._tab.Pos)[0])


@pytest.mark.parametrize(
    ("place", "form", "value", "wanted"),
    [
        (vector_of_inputs, "<I", 2**32 - 1, r"operators\[0\].inputs: 17179869180 bytes at offset \d+ are not inside"),
        (vector_of_inputs, "<I", 2**30, r"operators\[0\].inputs: 4294967296 bytes at offset \d+ are not inside"),
        (
            lambda m: field_position(m.Subgraphs(0).Operators(0), "OPERATOR", "inputs"),
            "<I",
            6,
            r"Model.subgraphs\[0\].operators\[0\].inputs: offset must be a multiple of 4",
        ),
        (
            lambda m: field_position(m.Subgraphs(0).Tensors(0), "TENSOR", "name"),
            "<I",
            2**31,
            r"tensors\[0\].name: 4 bytes at offset \d+ are not inside",
        ),
        (lambda m: field_position(m, "MODEL", "subgraphs"), "<I", 0, "Model.subgraphs: offset at .* must not be 0"),
        (lambda m: field_position(m, "MODEL", "buffers"), "<I", 2**32 - 1, "Model.buffers: "),
        (
            lambda m: m.Subgraphs(0).Tensors(1)._tab.Pos,
            "<i",
            -(2**31),
            r"tensors\[1\] \(vtable\): 4 bytes at offset \d+ are not inside",
        ),
        (vtable, "<H", 3, "lengths must be at least 4, the vtable's even, got 3 and"),
        (vtable, "<H", 2, "lengths must be at least 4, the vtable's even, got 2 and"),
        (vtable, "<H", 0xFFFE, r"\(vtable\): 65534 bytes at offset \d+ are not inside"),
        (lambda m: vtable(m) + 2, "<H", 0xFFFF, r"tensors\[\d\]: 65535 bytes at offset \d+ are not inside"),
        (lambda m: vtable(m) + 2, "<H", 0, "lengths must be at least 4"),
        (lambda m: vtable(m) + 4, "<H", 0xFFFC, r"tensors\[\d\].shape: 4 aligned bytes must lie in bytes 4 to"),
        (lambda m: vtable(m) + 4, "<H", 2, r"tensors\[\d\].shape: 4 aligned bytes must lie in bytes 4 to"),
        (lambda m: vtable(m) + 8, "<H", 5, r"tensors\[\d\].buffer: 4 aligned bytes must lie in bytes 4 to"),
    ],
)
def test_patched(place: Callable[[Any], int], form: str, value: int, wanted: str) -> None:
    refused(patched(place, form, value), wanted)


def test_tables_may_point_at_each_other() -> None:
    """A subgraph offset that points back at the model: other tables, same bytes, no endless walk."""
    data = bytearray(sample().write())
    model = tflite.Model.GetRootAs(bytes(data))
    vector = model._tab.Indirect(field_position(model, "MODEL", "subgraphs"))
    struct.pack_into("<I", data, vector + 4, (model._tab.Pos - vector - 4) % 2**32)
    with pytest.raises(TfliteError):
        read(bytes(data))


def test_truncated() -> None:
    data = sample().write()
    for cut in sorted({len(data) * part // 64 for part in range(64)}):
        with pytest.raises(TfliteError):
            read(data[:cut])


def test_truncated_attachment(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "labels.zip", "w") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
    data = sample().write() + (tmp_path / "labels.zip").read_bytes()
    assert len(read(data).subgraphs) == 1
    refused(data[:-30], f"zip archive at byte .* has no end: the file of {len(data) - 30} bytes is cut short")


def survives(data: bytes) -> bool:
    """Whether the data reads; anything but a TfliteError is a failure of the test."""
    try:
        model = read(data)
    except TfliteError as error:
        assert str(error)
        return False
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.data is not None:
                tensor.data.tobytes()
    return True


def test_changed_bytes() -> None:
    good = sample().write()
    rng = random.Random(20261120)
    values = [0, 1, 2, 3, 4, 0x7F, 0x80, 0xFE, 0xFF]
    read_count = 0
    tracemalloc.start()
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            data[rng.randrange(len(data))] = rng.choice((*values, rng.randrange(256)))
        read_count += survives(bytes(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < read_count < 2000
    assert peak < 8 << 20


def test_changed_words() -> None:
    good = sample().write()
    rng = random.Random(2)
    values = [0, 1, 4, 2**16, 2**30, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1]
    for position in range(0, len(good) - 3, 4):
        data = bytearray(good)
        struct.pack_into("<I", data, position, rng.choice(values))
        survives(bytes(data))

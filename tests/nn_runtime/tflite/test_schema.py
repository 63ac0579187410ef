# SPDX-License-Identifier: Apache-2.0
"""The schema as data against the accessors of the `tflite` package."""

from __future__ import annotations

from typing import Any

import pytest
import tflite

from nn_runtime.tflite import schema


class Recorder:
    """Stands for a table's bytes; notes what an accessor asks for."""

    def __init__(self) -> None:
        self.Pos = 0
        self.Bytes = b""
        self.slot = 0
        self.kind = ""

    def Offset(self, slot: int) -> int:  # noqa: N802
        self.slot = self.slot or slot
        return 4

    def Get(self, flags: Any, _: int) -> int:  # noqa: N802
        self.kind = self.kind or f"scalar {flags.bytewidth}"
        return 0

    def GetVectorAsNumpy(self, flags: Any, _: int) -> int:  # noqa: N802
        self.kind = f"vector {flags.bytewidth}"
        return 0

    def Vector(self, _: int) -> int:  # noqa: N802
        self.kind = "children"
        return 0

    def Indirect(self, _: int) -> int:  # noqa: N802
        self.kind = self.kind or "child"
        return 0

    def String(self, _: int) -> bytes:  # noqa: N802
        self.kind = "string"
        return b""

    def Union(self, *_: object) -> None:  # noqa: N802
        self.kind = "union"


def expected_kind(kind: schema.Kind) -> str:
    match kind:
        case schema.Scalar():
            return f"scalar {kind.size}"
        case schema.Vector():
            return f"vector {kind.item_size}"
        case _:
            return type(kind).__name__.lower()


def all_tables(table: schema.Table) -> list[schema.Table]:
    found = [table]
    for item in table.fields:
        if isinstance(item.kind, schema.Child | schema.Children):
            found += all_tables(item.kind.table)
        elif isinstance(item.kind, schema.Union):
            found += item.kind.variants.values()
    return found


@pytest.mark.parametrize("table", all_tables(schema.MODEL), ids=lambda table: table.name)
def test_schema_is_that_of_the_accessors(table: schema.Table) -> None:
    for item in table.fields:
        reader = getattr(tflite, table.name)()
        recorder = reader._tab = Recorder()
        if isinstance(item.kind, schema.Vector):
            getattr(reader, f"{item.accessor}AsNumpy")()
        elif isinstance(item.kind, schema.Children):
            getattr(reader, item.accessor)(0)
        else:
            getattr(reader, item.accessor)()
        assert (recorder.slot, recorder.kind) == (item.slot, expected_kind(item.kind)), item.name

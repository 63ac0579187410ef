# SPDX-License-Identifier: Apache-2.0
"""The schema as data against the accessors of the packages `tflite` and `ai-edge-litert`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tflite
from flatbuffers.number_types import to_numpy_type

from nn_runtime.tflite import fields, options, schema
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.types import TensorType


@pytest.fixture(name="litert", scope="module")
def litert_schema() -> Any:
    return pytest.importorskip("ai_edge_litert.schema_py_generated")


class Recorder:
    """Stands for a table's bytes, which lack every field or have it; notes what an accessor asks for."""

    def __init__(self, *, has_fields: bool) -> None:
        self.Pos = 0
        self.Bytes = b""
        self.slot = 0
        self.kind = ""
        self._offset = 4 if has_fields else 0

    def Offset(self, slot: int) -> int:  # noqa: N802
        self.slot = self.slot or slot
        return self._offset

    def Get(self, flags: Any, _: int) -> int:  # noqa: N802
        self.kind = self.kind or f"scalar {flags.packer_type.format.lstrip('<')}"
        return 0

    def GetVectorAsNumpy(self, flags: Any, _: int) -> int:  # noqa: N802
        self.kind = f"vector {np.dtype(to_numpy_type(flags)).newbyteorder('<').str}"
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


def expected_kind(kind: fields.Kind) -> str:
    match kind:
        case fields.Scalar():
            return f"scalar {kind.format.format.lstrip('<')}"
        case fields.Vector():
            return f"vector {kind.item.str}"
        case _:
            return type(kind).__name__.lower()


def all_tables(table: fields.Table) -> list[fields.Table]:
    found = [table]
    for item in table.fields:
        if isinstance(item.kind, fields.Child | fields.Children):
            found += all_tables(item.kind.table)
        elif isinstance(item.kind, fields.Union):
            found += item.kind.variants.values()
    return found


def answer(table: fields.Table, item: fields.Field, recorder: Recorder) -> object:
    """What the package's accessor of a field returns."""
    package: Any = tflite
    if not hasattr(tflite, table.name):  # newer than that package
        package = pytest.importorskip("ai_edge_litert.schema_py_generated")
    reader = getattr(package, table.name)()
    reader._tab = recorder
    name = "".join(part[:1].upper() + part[1:] for part in item.name.split("_"))
    if isinstance(item.kind, fields.Vector):
        return getattr(reader, f"{name}AsNumpy")()
    return getattr(reader, name)(0) if isinstance(item.kind, fields.Children) else getattr(reader, name)()


@pytest.mark.parametrize("table", all_tables(schema.MODEL), ids=lambda table: table.name)
def test_schema_is_that_of_the_accessors(table: fields.Table) -> None:
    for item in table.fields:
        recorder = Recorder(has_fields=True)
        answer(table, item, recorder)
        assert (recorder.slot, recorder.kind) == (item.slot, expected_kind(item.kind)), item.name


@pytest.mark.parametrize("table", all_tables(schema.MODEL), ids=lambda table: table.name)
def test_defaults_are_those_of_the_accessors(table: fields.Table) -> None:
    assert set(table.defaults) == {item.name for item in table.fields}
    for item in table.fields:
        if isinstance(item.kind, fields.Scalar):
            ours, theirs = table.defaults[item.name], answer(table, item, Recorder(has_fields=False))
            assert (type(ours), ours) == (type(theirs), theirs), item.name


def members(enumeration: type) -> dict[str, int]:
    return {name: number for name, number in vars(enumeration).items() if not name.startswith("_")}


def test_operators_have_the_numbers_of_the_packages(litert: Any) -> None:
    ours = members(BuiltinOperator)
    assert ours.items() <= members(litert.BuiltinOperator).items()
    assert members(tflite.BuiltinOperator).items() <= ours.items()


def test_options_have_the_tags_of_the_package(litert: Any) -> None:
    for tables, tags in (
        (options.OPTIONS_BY_TAG, litert.BuiltinOptions),
        (options.OPTIONS_2_BY_TAG, litert.BuiltinOptions2),
    ):
        assert {table.name: tag for tag, table in tables.items()}.items() <= members(tags).items()
    indices = next(item.kind for item in schema.DIMENSION.fields if item.name == "array_indices")
    assert isinstance(indices, fields.Union)
    assert {"NONE": 0, **{table.name: tag for tag, table in indices.variants.items()}} == members(
        litert.SparseIndexVector
    )


def test_types_have_the_numbers_of_the_package(litert: Any) -> None:
    assert {member.name: member.value for member in TensorType}.items() <= members(litert.TensorType).items()


def test_nothing_needs_the_packages_of_the_tests() -> None:
    """Conversions of all operators are imported where `tflite` and `ai-edge-litert` are not installed."""
    blocked = "import sys; sys.modules.update({'tflite': None, 'ai_edge_litert': None}); "
    code = blocked + "from nn_runtime.tflite.operators import converted_operators; assert converted_operators()"
    subprocess.run([sys.executable, "-c", code], check=True)

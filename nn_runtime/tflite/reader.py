# SPDX-License-Identifier: Apache-2.0
"""Read a .tflite file into plain values.

`verifier` proves that every access stays inside the file; this module turns tables into `types` values and checks their
meaning: indices, shapes, quantisation, sizes of constants, options that fit their operator. Constants are views of the
file's bytes, sparse ones dense copies (`sparsity`). A promise in this order: no crash, no access outside the file, no
allocation beyond a small multiple of the file's length. Every message names where, what was wanted and what was found.
"""

from __future__ import annotations

import functools
import importlib
import os
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from flatbuffers.number_types import Int32Flags
from tflite.Model import Model

from nn_runtime.tflite import graph, schema
from nn_runtime.tflite.tensor_reader import (
    MAX_SHOWN,
    Buffers,
    Bytes,
    integers,
    quoted,
    read_tensor,
    text,
    with_empty_data,
)
from nn_runtime.tflite.types import (
    OptionValue,
    TfliteModel,
    TfliteOperator,
    TfliteSignature,
    TfliteSubgraph,
)
from nn_runtime.tflite.verifier import TfliteError, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tflite.Operator import Operator
    from tflite.OperatorCode import OperatorCode
    from tflite.SignatureDef import SignatureDef
    from tflite.SubGraph import SubGraph
    from tflite.Tensor import Tensor
    from tflite.TensorMap import TensorMap

__all__ = ["TfliteError", "TfliteModel", "read"]

SCHEMA_VERSION = 3
# A table without fields: vtable (length 4, table length 4), then the table's offset back to it.
_EMPTY_TABLE = struct.pack("<HHi", 4, 4, 4)
_EMPTY_TABLE_START = 4
_BUILTIN_CODE_SLOT = next(field.slot for field in schema.OPERATOR_CODE.fields if field.name == "builtin_code")
# A zip archive ends with a record of 22 bytes and a comment of at most 65,535.
_ZIP_START, _ZIP_END, _ZIP_END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22 + 65535


def read(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> TfliteModel:
    """Read a .tflite file by its path, or from its bytes. Raises TfliteError (bad content) or OSError (bad path)."""
    data = bytes(source) if isinstance(source, bytes | bytearray | memoryview) else _load(source)
    end = verify(data, schema.MODEL)
    _check_attachment(data, end)
    return _model(Model.GetRootAs(data, 0), data, end)


def _load(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file whole. Not mapped: a mapped file that somebody cuts short kills the process."""
    name = os.fspath(path)  # a number would be taken for a descriptor, and closed
    if stat.S_ISFIFO(os.stat(name).st_mode):  # noqa: PTH116 (a path-like of any kind)
        raise TfliteError("must be a regular file: opening a pipe would wait for its writer")
    with open(name, "rb") as file:  # noqa: PTH123 (a path-like of any kind)
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise TfliteError("must be a regular file")
        return file.read()


def _check_attachment(data: bytes, tables_end: int) -> None:
    """Require that a zip archive behind the tables (label files, as metadata writers append them) has its end."""
    tail = max(tables_end, len(data) - _ZIP_END_BYTES)
    if data.startswith(_ZIP_START, tables_end) and data.find(_ZIP_END, tail) < 0:
        raise TfliteError(
            f"the zip archive at byte {tables_end} has no end: the file of {len(data)} bytes is cut short"
        )


def _model(model: Model, data: bytes, tables_end: int) -> TfliteModel:
    """Decode a verified file."""
    if model.Version() != SCHEMA_VERSION:
        raise TfliteError(f"schema version must be {SCHEMA_VERSION}, got {model.Version()}")
    if model.SubgraphsLength() == 0:
        raise TfliteError("the file must hold at least one subgraph, got none")
    buffers = Buffers(model, data, tables_end)
    codes = tuple(_operator_code(model.OperatorCodes(i), i) for i in range(model.OperatorCodesLength()))
    subgraphs = tuple(
        _subgraph(model.Subgraphs(i), f"subgraph {i}", codes, buffers) for i in range(model.SubgraphsLength())
    )
    graph.check_calls(subgraphs)
    return TfliteModel(
        version=SCHEMA_VERSION,
        description=text(model.Description()),
        subgraphs=subgraphs,
        signatures=tuple(
            _signature(model.SignatureDefs(i), f"signature {i}", subgraphs) for i in range(model.SignatureDefsLength())
        ),
        metadata=_metadata(model, buffers),
    )


@dataclass(frozen=True)
class _Code:
    """A decoded OperatorCode."""

    code: int
    name: str
    custom_code: str | None
    version: int


def _operator_code(table: OperatorCode, index: int) -> _Code:
    """Decode an operator code. Old files have the 8-bit field alone, newer ones both."""
    old, new = table.DeprecatedBuiltinCode(), _builtin_code(table)
    code = max(old, new)
    agree = 0 in (old, new) or old == new or (old == schema.PLACEHOLDER and new > schema.PLACEHOLDER)
    if min(old, new) < 0 or not agree:
        raise TfliteError(
            f"operator code {index}: builtin_code and deprecated_builtin_code must agree, got {new} and {old}"
        )
    if code != schema.CUSTOM:
        return _Code(code, schema.OPERATOR_NAMES.get(code, f"BUILTIN_{code}"), None, table.Version())
    custom_code = text(table.CustomCode())
    if not custom_code:
        raise TfliteError(f"operator code {index}: CUSTOM must have a custom_code, got none")
    return _Code(code, f"CUSTOM {quoted(custom_code)}", custom_code, table.Version())


def _builtin_code(table: OperatorCode) -> int:
    """Return the 32-bit code as stored: below 127 the accessor answers with the 8-bit one, even where that is unset."""
    offset = table._tab.Offset(_BUILTIN_CODE_SLOT)
    return int(table._tab.Get(Int32Flags, table._tab.Pos + offset)) if offset else 0


def _subgraph(table: SubGraph, where: str, codes: Sequence[_Code], buffers: Buffers) -> TfliteSubgraph:
    """Decode a subgraph and check that its operators can run in file order."""
    tensors = tuple(
        read_tensor(table.Tensors(i), f"{where}: tensor {i}", buffers) for i in range(table.TensorsLength())
    )
    operators = tuple(_operators(table, where, codes, len(tensors)))
    inputs, outputs = integers(table.InputsAsNumpy), integers(table.OutputsAsNumpy)
    _check_indices(inputs, 0, len(tensors), f"{where}: input")
    _check_indices(outputs, 0, len(tensors), f"{where}: output")
    if len(set(inputs)) != len(inputs):
        raise TfliteError(f"{where}: inputs must be different tensors, got {list(inputs)[:MAX_SHOWN]}")
    written = {index for operator in operators for index in operator.outputs}.union(inputs)
    tensors = tuple(tensor if index in written else with_empty_data(tensor) for index, tensor in enumerate(tensors))
    subgraph = TfliteSubgraph(text(table.Name()), tensors, operators, inputs, outputs)
    graph.check_dataflow(subgraph, where)
    return subgraph


def _check_indices(indices: Sequence[int], lowest: int, count: int, where: str) -> None:
    """Require every tensor index in [lowest, count)."""
    for position, index in enumerate(indices):
        if not lowest <= index < count:
            raise TfliteError(f"{where} {position}: tensor index must be {lowest} to {count - 1}, got {index}")


def _operators(table: SubGraph, where: str, codes: Sequence[_Code], tensor_count: int) -> Iterator[TfliteOperator]:
    """Decode the operators of a subgraph."""
    for index in range(table.OperatorsLength()):
        operator = table.Operators(index)
        code_index = operator.OpcodeIndex()
        if code_index >= len(codes):
            raise TfliteError(f"{where}: operator {index}: opcode_index must be below {len(codes)}, got {code_index}")
        yield _operator(operator, index, f"{where}: operator {index}", codes[code_index], tensor_count)


def _operator(table: Operator, index: int, where: str, code: _Code, tensor_count: int) -> TfliteOperator:
    """Decode one operator and its options."""
    where = f"{where} {code.name}"
    inputs, outputs = integers(table.InputsAsNumpy), integers(table.OutputsAsNumpy)
    intermediates = integers(table.IntermediatesAsNumpy)
    _check_indices(inputs, -1, tensor_count, f"{where}: input")
    _check_indices(outputs, 0, tensor_count, f"{where}: output")
    _check_indices(intermediates, -1, tensor_count, f"{where}: intermediate")
    return TfliteOperator(
        index=index,
        code=code.code,
        name=code.name,
        custom_code=code.custom_code,
        custom_options=table.CustomOptionsAsNumpy() if table.CustomOptionsLength() else np.empty(0, np.uint8),
        version=code.version,
        options=_options(table, code.code, where),
        inputs=inputs,
        outputs=outputs,
        intermediates=intermediates,
    )


def _options(operator: Operator, code: int, where: str) -> dict[str, OptionValue]:
    """Decode the builtin options; where the file leaves them out, the schema's defaults."""
    tag = operator.BuiltinOptionsType()
    given = schema.OPTIONS_BY_TAG[tag] if tag else None
    wanted = schema.OPTIONS_BY_OPERATOR.get(code, given)
    if wanted is None:
        return {}
    if given is not None and given is not wanted:
        raise TfliteError(f"{where}: builtin options must be {wanted.name}, got {given.name}")
    table = _accessor_class(wanted.name)()
    if given is None:
        table.Init(_EMPTY_TABLE, _EMPTY_TABLE_START)
    else:
        union = operator.BuiltinOptions()
        table.Init(union.Bytes, union.Pos)
    return {field.name: _option(table, field) for field in wanted.fields}


def _option(table: object, field: schema.Field) -> OptionValue:
    """Decode one field of an options table."""
    if isinstance(field.kind, schema.Vector):
        return integers(getattr(table, f"{field.accessor}AsNumpy"))
    value: bytes | OptionValue | None = getattr(table, field.accessor)()
    return text(value) if value is None or isinstance(value, bytes) else value


@functools.cache
def _accessor_class(name: str) -> Callable[[], Tensor]:
    """Return the class of the `tflite` package that reads a table."""
    found: Callable[[], Tensor] = getattr(importlib.import_module(f"tflite.{name}"), name)
    return found


def _signature(table: SignatureDef, where: str, subgraphs: Sequence[TfliteSubgraph]) -> TfliteSignature:
    """Decode a signature; its names must stand for inputs and outputs of its subgraph."""
    key = text(table.SignatureKey())
    where = f"{where} {quoted(key)}"
    index = table.SubgraphIndex()
    if index >= len(subgraphs):
        raise TfliteError(f"{where}: subgraph index must be below {len(subgraphs)}, got {index}")
    subgraph = subgraphs[index]
    inputs = (table.Inputs(i) for i in range(table.InputsLength()))
    outputs = (table.Outputs(i) for i in range(table.OutputsLength()))
    return TfliteSignature(
        key=key,
        subgraph_index=index,
        inputs=_tensor_map(inputs, set(subgraph.inputs), f"{where}: input"),
        outputs=_tensor_map(outputs, set(subgraph.outputs), f"{where}: output"),
    )


def _tensor_map(entries: Iterator[TensorMap], allowed: set[int], where: str) -> dict[str, int]:
    """Decode names of a signature's inputs or outputs."""
    names: dict[str, int] = {}
    for entry in entries:
        name, index = text(entry.Name()), entry.TensorIndex()
        if index not in allowed:
            raise TfliteError(f"{where} {quoted(name)}: tensor must be one of the subgraph's, got index {index}")
        if name in names:
            raise TfliteError(f"{where} {quoted(name)}: names must be different, got this one twice")
        names[name] = index
    return names


def _metadata(model: Model, buffers: Buffers) -> dict[str, Bytes]:
    """Return the metadata blobs by name."""
    found: dict[str, Bytes] = {}
    for entry in (model.Metadata(i) for i in range(model.MetadataLength())):
        name = text(entry.Name())
        content = buffers.view(entry.Buffer(), f"metadata {quoted(name)}")
        found[name] = np.empty(0, np.uint8) if content is None else content
    return found

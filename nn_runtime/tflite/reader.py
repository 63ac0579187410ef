# SPDX-License-Identifier: Apache-2.0
"""Read a .tflite file into plain values.

`decoder` makes records of its tables, whose every access stays inside the file; this module turns them into `types`
values and checks their meaning: indices, shapes, quantisation, sizes of constants, options that fit their operator.
Constants are views of the file's bytes, sparse ones dense copies (`sparsity`). A promise in this order: no crash, no
access outside the file, no allocation beyond a small multiple of the file's length and what `MAX_TABLES` small objects
take. Every message names where, what was wanted and what was found.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.tflite import graph
from nn_runtime.tflite.builtin_operator import OPERATOR_NAMES, BuiltinOperator
from nn_runtime.tflite.decoder import Record, TfliteError, decode
from nn_runtime.tflite.fields import String, Vector
from nn_runtime.tflite.options import OPTIONS_2_BY_TAG, OPTIONS_BY_OPERATOR, OPTIONS_BY_TAG
from nn_runtime.tflite.schema import MODEL
from nn_runtime.tflite.tensor_reader import MAX_SHOWN, Buffers, Bytes, quoted, read_tensor, with_empty_data
from nn_runtime.tflite.types import (
    OptionValue,
    TfliteModel,
    TfliteOperator,
    TfliteSignature,
    TfliteSubgraph,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.tflite.fields import Field

__all__ = ["TfliteError", "TfliteModel", "read"]

SCHEMA_VERSION = 3
_PLACEHOLDER = BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
"""`deprecated_builtin_code` of operators that do not fit in its 8 bits."""
_OPTIONS = {"builtin_options": OPTIONS_BY_TAG, "builtin_options_2": OPTIONS_2_BY_TAG}
"""The fields that an operator's options may be in, and what they are by their tag."""
# A zip archive ends with a record of 22 bytes and a comment of at most 65,535.
_ZIP_START, _ZIP_END, _ZIP_END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22 + 65535


def read(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> TfliteModel:
    """Read a .tflite file by its path, or from its bytes. Raises TfliteError (bad content) or OSError (bad path)."""
    data = bytes(source) if isinstance(source, bytes | bytearray | memoryview) else _load(source)
    model, end = decode(data, MODEL)
    _check_attachment(data, end)
    return _model(model, data, end)


def _load(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file whole. Not mapped: a mapped file that somebody cuts short kills the process."""
    name = os.fspath(path)  # a number would be taken for a descriptor, and closed
    if "\0" in os.fsdecode(name):
        raise TfliteError("a path has no null characters")
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


def _model(model: Record, data: bytes, tables_end: int) -> TfliteModel:
    """Check the root record and all below it."""
    if model.number("version") != SCHEMA_VERSION:
        raise TfliteError(f"schema version must be {SCHEMA_VERSION}, got {model.number('version')}")
    if not model.records("subgraphs"):
        raise TfliteError("the file must hold at least one subgraph, got none")
    buffers = Buffers(model.records("buffers"), data, tables_end)
    codes = tuple(_operator_code(code, i) for i, code in enumerate(model.records("operator_codes")))
    subgraphs = tuple(
        _subgraph(subgraph, f"subgraph {i}", codes, buffers) for i, subgraph in enumerate(model.records("subgraphs"))
    )
    graph.check_calls(subgraphs)
    return TfliteModel(
        version=SCHEMA_VERSION,
        description=model.text("description"),
        subgraphs=subgraphs,
        signatures=tuple(
            _signature(signature, f"signature {i}", subgraphs)
            for i, signature in enumerate(model.records("signature_defs"))
        ),
        metadata=_metadata(model, buffers),
    )


@dataclass(frozen=True)
class _Code:
    """A checked OperatorCode."""

    code: int
    name: str
    custom_code: str | None
    version: int


def _operator_code(record: Record, index: int) -> _Code:
    """Check an operator code. Old files have the 8-bit field alone, newer ones both."""
    old, new, version = (record.number(name) for name in ("deprecated_builtin_code", "builtin_code", "version"))
    code = max(old, new)
    agree = 0 in (old, new) or old == new or (old == _PLACEHOLDER and new > _PLACEHOLDER)
    if min(old, new) < 0 or not agree:
        raise TfliteError(
            f"operator code {index}: builtin_code and deprecated_builtin_code must agree, got {new} and {old}"
        )
    if code != BuiltinOperator.CUSTOM:
        return _Code(code, OPERATOR_NAMES.get(code, f"BUILTIN_{code}"), None, version)
    custom_code = record.text("custom_code")
    if not custom_code:
        raise TfliteError(f"operator code {index}: CUSTOM must have a custom_code, got none")
    return _Code(code, f"CUSTOM {quoted(custom_code)}", custom_code, version)


def _subgraph(record: Record, where: str, codes: Sequence[_Code], buffers: Buffers) -> TfliteSubgraph:
    """Check a subgraph, and that its operators can run in file order."""
    tensors = tuple(
        read_tensor(tensor, f"{where}: tensor {i}", buffers) for i, tensor in enumerate(record.records("tensors"))
    )
    operators = tuple(_operators(record, where, codes, len(tensors)))
    inputs, outputs = record.integers("inputs"), record.integers("outputs")
    _check_indices(inputs, 0, len(tensors), f"{where}: input")
    _check_indices(outputs, 0, len(tensors), f"{where}: output")
    if len(set(inputs)) != len(inputs):
        raise TfliteError(f"{where}: inputs must be different tensors, got {list(inputs)[:MAX_SHOWN]}")
    written = {index for operator in operators for index in operator.outputs}.union(inputs)
    tensors = tuple(tensor if index in written else with_empty_data(tensor) for index, tensor in enumerate(tensors))
    subgraph = TfliteSubgraph(record.text("name"), tensors, operators, inputs, outputs)
    graph.check_dataflow(subgraph, where)
    return subgraph


def _check_indices(indices: Sequence[int], lowest: int, count: int, where: str) -> None:
    """Require every tensor index in [lowest, count)."""
    for position, index in enumerate(indices):
        if not lowest <= index < count:
            raise TfliteError(f"{where} {position}: tensor index must be {lowest} to {count - 1}, got {index}")


def _operators(subgraph: Record, where: str, codes: Sequence[_Code], tensor_count: int) -> Iterator[TfliteOperator]:
    """Check the operators of a subgraph."""
    for index, operator in enumerate(subgraph.records("operators")):
        code_index = operator.number("opcode_index")
        if code_index >= len(codes):
            raise TfliteError(f"{where}: operator {index}: opcode_index must be below {len(codes)}, got {code_index}")
        yield _operator(operator, index, f"{where}: operator {index}", codes[code_index], tensor_count)


def _operator(record: Record, index: int, where: str, code: _Code, tensor_count: int) -> TfliteOperator:
    """Check one operator and its options."""
    where = f"{where} {code.name}"
    inputs, outputs, intermediates = (record.integers(name) for name in ("inputs", "outputs", "intermediates"))
    _check_indices(inputs, -1, tensor_count, f"{where}: input")
    _check_indices(outputs, 0, tensor_count, f"{where}: output")
    _check_indices(intermediates, -1, tensor_count, f"{where}: intermediate")
    return TfliteOperator(
        index=index,
        code=code.code,
        name=code.name,
        custom_code=code.custom_code,
        custom_options=record.numbers("custom_options"),
        version=code.version,
        options=_options(record, code.code, where),
        inputs=inputs,
        outputs=outputs,
        intermediates=intermediates,
    )


def _options(operator: Record, code: int, where: str) -> dict[str, OptionValue]:
    """Return the builtin options; where the file leaves them out, the schema's defaults."""
    given = [
        (tables[tag], operator.record(name))
        for name, tables in _OPTIONS.items()
        if (tag := operator.number(f"{name}_type"))
    ]
    wanted = OPTIONS_BY_OPERATOR.get(code, given[0][0] if given else None)
    if wanted is None:
        return {}
    for table, _ in given:
        if table is not wanted:
            raise TfliteError(f"{where}: builtin options must be {wanted.name}, got {table.name}")
    options = next((record for _, record in given if record is not None), None) or Record(wanted.defaults)
    return {field.name: _option(options, field) for field in wanted.fields}


def _option(options: Record, field: Field) -> OptionValue:
    """Return one field of an options table."""
    match field.kind:
        case Vector():
            return options.integers(field.name)
        case String():
            return options.text(field.name)
        case _:
            return options.scalar(field.name)


def _signature(record: Record, where: str, subgraphs: Sequence[TfliteSubgraph]) -> TfliteSignature:
    """Check a signature; its names must stand for inputs and outputs of its subgraph."""
    key = record.text("signature_key")
    where = f"{where} {quoted(key)}"
    index = record.number("subgraph_index")
    if index >= len(subgraphs):
        raise TfliteError(f"{where}: subgraph index must be below {len(subgraphs)}, got {index}")
    subgraph = subgraphs[index]
    return TfliteSignature(
        key=key,
        subgraph_index=index,
        inputs=_tensor_map(record.records("inputs"), set(subgraph.inputs), f"{where}: input"),
        outputs=_tensor_map(record.records("outputs"), set(subgraph.outputs), f"{where}: output"),
    )


def _tensor_map(entries: Sequence[Record], allowed: set[int], where: str) -> dict[str, int]:
    """Return names of a signature's inputs or outputs."""
    names: dict[str, int] = {}
    for entry in entries:
        name, index = entry.text("name"), entry.number("tensor_index")
        if index not in allowed:
            raise TfliteError(f"{where} {quoted(name)}: tensor must be one of the subgraph's, got index {index}")
        if name in names:
            raise TfliteError(f"{where} {quoted(name)}: names must be different, got this one twice")
        names[name] = index
    return names


def _metadata(model: Record, buffers: Buffers) -> dict[str, Bytes]:
    """Return the metadata blobs by name."""
    found: dict[str, Bytes] = {}
    for entry in model.records("metadata"):
        name = entry.text("name")
        content = buffers.view(entry.number("buffer"), f"metadata {quoted(name)}")
        found[name] = np.empty(0, np.uint8) if content is None else content
    return found

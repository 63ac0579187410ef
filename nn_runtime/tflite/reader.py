# SPDX-License-Identifier: Apache-2.0
"""Read a .tflite file into plain values.

`verifier` proves that every access stays inside the file; this module turns tables into `types` values and checks their
meaning: indices, shapes, quantisation, sizes of constants, options that fit their operator. Constants are views of the
file's bytes. A promise in this order: no crash, no access outside the file, no allocation beyond a small multiple of
the file's length. Every message names where, what was wanted and what was found.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from flatbuffers.number_types import Int32Flags
from tflite.Model import Model

from nn_runtime.tflite import graph, schema
from nn_runtime.tflite.types import (
    OptionValue,
    TensorType,
    TfliteModel,
    TfliteOperator,
    TfliteQuantization,
    TfliteSignature,
    TfliteSubgraph,
    TfliteTensor,
)
from nn_runtime.tflite.verifier import TfliteError, verify

if TYPE_CHECKING:
    from tflite.Operator import Operator
    from tflite.OperatorCode import OperatorCode
    from tflite.QuantizationParameters import QuantizationParameters
    from tflite.SignatureDef import SignatureDef
    from tflite.SubGraph import SubGraph
    from tflite.Tensor import Tensor
    from tflite.TensorMap import TensorMap

__all__ = ["TfliteError", "TfliteModel", "read"]

SCHEMA_VERSION = 3
MAX_RANK = 8
# An NNAPI operand's length is an unsigned 32-bit number.
MAX_TENSOR_BYTES = (1 << 32) - 1
_MAX_SHOWN = 60
# A table without fields: vtable (length 4, table length 4), then the table's offset back to it.
_EMPTY_TABLE = struct.pack("<HHi", 4, 4, 4)
_EMPTY_TABLE_START = 4
_BUILTIN_CODE_SLOT = next(field.slot for field in schema.OPERATOR_CODE.fields if field.name == "builtin_code")
# A zip archive ends with a record of 22 bytes and a comment of at most 65,535.
_ZIP_START, _ZIP_END, _ZIP_END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22 + 65535
_SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)

_Bytes: TypeAlias = npt.NDArray[np.uint8]
# What an accessor ...AsNumpy returns: an array, or the number 0 where the field is absent.
_Numbers: TypeAlias = Callable[[], "npt.NDArray[np.generic] | int"]


def read(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> TfliteModel:
    """Read a .tflite file by its path, or from its bytes. Raises TfliteError (bad content) or OSError (bad path)."""
    data = bytes(source) if isinstance(source, bytes | bytearray | memoryview) else _load(source)
    end = verify(data, schema.MODEL)
    _check_attachment(data, end)
    return _model(Model.GetRootAs(data, 0), data, end)


def quoted(name: str) -> str:
    """Return a name for a message: quoted, unprintable characters escaped, at most about 60 characters."""
    return repr(name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "...")


def _load(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file whole. Not mapped: a mapped file that somebody cuts short kills the process."""
    name = os.fspath(path)  # a number would be taken for a descriptor, and closed
    if stat.S_ISFIFO(os.stat(name).st_mode):  # noqa: PTH116 (a path-like of any kind)
        raise TfliteError(f"{name!r}: must be a regular file, opening a pipe would wait for its writer")
    with open(name, "rb") as file:  # noqa: PTH123 (a path-like of any kind)
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise TfliteError(f"{name!r}: must be a regular file")
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
    buffers = _Buffers(model, data, tables_end)
    codes = tuple(_operator_code(model.OperatorCodes(i), i) for i in range(model.OperatorCodesLength()))
    subgraphs = tuple(
        _subgraph(model.Subgraphs(i), f"subgraph {i}", codes, buffers) for i in range(model.SubgraphsLength())
    )
    graph.check_calls(subgraphs)
    return TfliteModel(
        version=SCHEMA_VERSION,
        description=_text(model.Description()),
        subgraphs=subgraphs,
        signatures=tuple(
            _signature(model.SignatureDefs(i), f"signature {i}", subgraphs) for i in range(model.SignatureDefsLength())
        ),
        metadata=_metadata(model, buffers),
    )


def _text(value: bytes | None) -> str:
    """Decode a string of the file; bytes that are not UTF-8 become U+FFFD."""
    return "" if value is None else value.decode("utf-8", "replace")


def _integers(numbers: _Numbers) -> tuple[int, ...]:
    """Return an integer vector, empty where the field is absent."""
    values = numbers()
    return () if isinstance(values, int) else tuple(values.tolist())


class _Buffers:
    """The constants of a file, by buffer index."""

    def __init__(self, model: Model, data: bytes, tables_end: int) -> None:
        self._model = model
        self._data = data
        self._tables_end = tables_end
        self._length: int = model.BuffersLength()
        self._views: dict[int, _Bytes | None] = {}
        self._booleans: set[int] = set()

    def view(self, index: int, where: str) -> _Bytes | None:
        """Return the bytes of a buffer; None where it holds none. Buffer 0 is the one that stands for "no data"."""
        if index == 0:
            return None
        if index >= self._length:
            raise TfliteError(f"{where}: buffer index must be below {self._length}, got {index}")
        if index not in self._views:
            self._views[index] = self._decode(index)
        return self._views[index]

    def check_boolean(self, index: int, content: _Bytes, where: str) -> None:
        """Require bytes 0 and 1 only: numpy's boolean arithmetic is undefined for others."""
        if index not in self._booleans and content.size and content.max() > 1:
            raise TfliteError(f"{where}: BOOL constant must hold bytes 0 and 1, got {content.max()}")
        self._booleans.add(index)

    def _decode(self, index: int) -> _Bytes | None:
        """Return the bytes inside the buffer's table, or those behind the tables (files over 2 GiB)."""
        buffer = self._model.Buffers(index)
        if buffer.DataLength():
            content: _Bytes = buffer.DataAsNumpy()
            return content
        offset, size = buffer.Offset(), buffer.Size()
        # 0 and 1 both mean "inside the table".
        if offset <= 1:
            return None
        if offset < self._tables_end or offset + size > len(self._data):
            raise TfliteError(
                f"buffer {index}: data must lie in bytes {self._tables_end} to {len(self._data)} of the file, "
                f"got {size} bytes at {offset}"
            )
        return np.frombuffer(self._data, np.uint8, size, offset) if size else None


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
    custom_code = _text(table.CustomCode())
    if not custom_code:
        raise TfliteError(f"operator code {index}: CUSTOM must have a custom_code, got none")
    return _Code(code, f"CUSTOM {quoted(custom_code)}", custom_code, table.Version())


def _builtin_code(table: OperatorCode) -> int:
    """Return the 32-bit code as stored: below 127 the accessor answers with the 8-bit one, even where that is unset."""
    offset = table._tab.Offset(_BUILTIN_CODE_SLOT)
    return int(table._tab.Get(Int32Flags, table._tab.Pos + offset)) if offset else 0


def _subgraph(table: SubGraph, where: str, codes: Sequence[_Code], buffers: _Buffers) -> TfliteSubgraph:
    """Decode a subgraph and check that its operators can run in file order."""
    tensors = tuple(_tensor(table.Tensors(i), f"{where}: tensor {i}", buffers) for i in range(table.TensorsLength()))
    operators = tuple(_operators(table, where, codes, len(tensors)))
    inputs, outputs = _integers(table.InputsAsNumpy), _integers(table.OutputsAsNumpy)
    _check_indices(inputs, 0, len(tensors), f"{where}: input")
    _check_indices(outputs, 0, len(tensors), f"{where}: output")
    if len(set(inputs)) != len(inputs):
        raise TfliteError(f"{where}: inputs must be different tensors, got {list(inputs)[:_MAX_SHOWN]}")
    written = {index for operator in operators for index in operator.outputs}.union(inputs)
    tensors = tuple(tensor if index in written else _with_empty_data(tensor) for index, tensor in enumerate(tensors))
    subgraph = TfliteSubgraph(_text(table.Name()), tensors, operators, inputs, outputs)
    graph.check_dataflow(subgraph, where)
    return subgraph


def _with_empty_data(tensor: TfliteTensor) -> TfliteTensor:
    """Give a tensor that nothing writes and that has no elements its (empty) constant: buffers cannot tell."""
    if tensor.data is not None or tensor.is_variable or 0 not in tensor.shape:
        return tensor
    return replace(tensor, data=_readonly(np.empty(tensor.shape, tensor.type.dtype or np.uint8)))


def _readonly(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Mark an array as not writeable and return it."""
    array.flags.writeable = False
    return array


def _check_indices(indices: Sequence[int], lowest: int, count: int, where: str) -> None:
    """Require every tensor index in [lowest, count)."""
    for position, index in enumerate(indices):
        if not lowest <= index < count:
            raise TfliteError(f"{where} {position}: tensor index must be {lowest} to {count - 1}, got {index}")


def _tensor(table: Tensor, where: str, buffers: _Buffers) -> TfliteTensor:
    """Decode a tensor with its constant, if it has one."""
    name = _text(table.Name())
    where = f"{where} {quoted(name)}"
    number = table.Type()
    if number not in TensorType._value2member_map_:
        raise TfliteError(f"{where}: type must be 0 to {max(TensorType)}, got {number}")
    tensor_type = TensorType(number)
    if table.Sparsity() is not None:
        raise TfliteError(f"{where}: sparse constants are not supported")
    shape = _integers(table.ShapeAsNumpy)
    _check_shape(shape, tensor_type, where)
    is_variable = bool(table.IsVariable())
    content = buffers.view(table.Buffer(), where)
    if is_variable and content is not None:
        raise TfliteError(f"{where}: a variable tensor must have no data, got {content.size} bytes")
    if content is not None and tensor_type is TensorType.BOOL:
        buffers.check_boolean(table.Buffer(), content, where)
    return TfliteTensor(
        name=name,
        type=tensor_type,
        shape=shape,
        shape_signature=_shape_signature(_integers(table.ShapeSignatureAsNumpy), shape, where),
        quantization=_quantization(table.Quantization(), tensor_type, shape, where),
        data=None if content is None else _constant(content, tensor_type, shape, where),
        is_variable=is_variable,
    )


def _check_shape(shape: tuple[int, ...], tensor_type: TensorType, where: str) -> None:
    """Require at most MAX_RANK dimensions, none negative, and a size that an operand can have."""
    if len(shape) > MAX_RANK:
        raise TfliteError(f"{where}: rank must be at most {MAX_RANK}, got {len(shape)}")
    if shape and min(shape) < 0:
        raise TfliteError(f"{where}: dimensions must be >= 0, got {shape}")
    size_bytes = _size_bytes(shape, tensor_type)
    if size_bytes > MAX_TENSOR_BYTES:
        raise TfliteError(f"{where}: shape {shape} must need at most {MAX_TENSOR_BYTES} bytes, needs {size_bytes}")


def _size_bytes(shape: tuple[int, ...], tensor_type: TensorType) -> int:
    """Return the bytes of a dense tensor; elements without a fixed size count one byte."""
    bits = 8 if tensor_type.bits is None else tensor_type.bits
    return (math.prod(shape) * bits + 7) // 8


def _shape_signature(signature: tuple[int, ...], shape: tuple[int, ...], where: str) -> tuple[int, ...] | None:
    """Return the shape with -1 for dimensions known only at run time; None where the file has none."""
    if not signature:
        return None
    if len(signature) != len(shape) or min(signature) < -1:
        raise TfliteError(
            f"{where}: shape_signature must have {len(shape)} dimensions >= -1, got {signature[:MAX_RANK]}"
        )
    return signature


def _constant(content: _Bytes, tensor_type: TensorType, shape: tuple[int, ...], where: str) -> npt.NDArray[np.generic]:
    """Return a constant as a view of the file, shaped where numpy has its type, else flat bytes."""
    if tensor_type.bits is None:
        return content
    wanted = _size_bytes(shape, tensor_type)
    if content.size != wanted:
        raise TfliteError(f"{where}: {tensor_type.name} {shape} needs {wanted} bytes of data, got {content.size}")
    dtype = tensor_type.dtype
    return content if dtype is None else content.view(dtype).reshape(shape)


_ZERO_POINT_RANGE = {
    TensorType.UINT8: (0, 255),
    TensorType.INT8: (-128, 127),
    TensorType.INT4: (-8, 7),
    TensorType.INT16: (-(1 << 15), (1 << 15) - 1),
    TensorType.UINT16: (0, (1 << 16) - 1),
    TensorType.INT32: (-(1 << 31), (1 << 31) - 1),
    TensorType.INT64: (-(1 << 63), (1 << 63) - 1),
}


def _quantization(
    table: QuantizationParameters | None, tensor_type: TensorType, shape: tuple[int, ...], where: str
) -> TfliteQuantization | None:
    """Decode and check the quantisation of an integer tensor; None for other types and where there is no scale."""
    if table is None:
        return None
    if table.DetailsType():
        raise TfliteError(f"{where}: quantisation details of type {table.DetailsType()} are not supported")
    scales, zero_points = table.ScaleAsNumpy(), table.ZeroPointAsNumpy()
    if isinstance(scales, int) or not scales.size or tensor_type not in _ZERO_POINT_RANGE:
        return None
    if not (np.isfinite(scales).all() and scales.min() >= _SMALLEST_NORMAL):
        bad = scales[~(np.isfinite(scales) & (scales >= _SMALLEST_NORMAL))][0]
        raise TfliteError(f"{where}: scales must be positive normal numbers, got {bad}")
    count = 0 if isinstance(zero_points, int) else zero_points.size
    if count != scales.size:
        raise TfliteError(f"{where}: needs one zero point for each of {scales.size} scales, got {count}")
    lowest, highest = _ZERO_POINT_RANGE[tensor_type]
    if zero_points.min() < lowest or zero_points.max() > highest:
        found = f"{zero_points.min()} to {zero_points.max()}"
        raise TfliteError(f"{where}: {tensor_type.name} zero points must be {lowest} to {highest}, got {found}")
    dimension = table.QuantizedDimension()
    _check_quantized_dimension(dimension, scales.size, shape, where)
    return TfliteQuantization(scales, zero_points, dimension)


def _check_quantized_dimension(dimension: int, count: int, shape: tuple[int, ...], where: str) -> None:
    """Require a dimension of the shape, with one scale for each of its indices or one for all."""
    if not (0 <= dimension < len(shape) or (dimension == 0 and count == 1)):
        raise TfliteError(f"{where}: quantized_dimension must be 0 to {len(shape) - 1}, got {dimension}")
    if count != 1 and count != shape[dimension]:
        raise TfliteError(f"{where}: needs 1 or {shape[dimension]} scales for dimension {dimension}, got {count}")


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
    inputs, outputs = _integers(table.InputsAsNumpy), _integers(table.OutputsAsNumpy)
    intermediates = _integers(table.IntermediatesAsNumpy)
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
        return _integers(getattr(table, f"{field.accessor}AsNumpy"))
    value: bytes | OptionValue | None = getattr(table, field.accessor)()
    return _text(value) if value is None or isinstance(value, bytes) else value


@functools.cache
def _accessor_class(name: str) -> Callable[[], Tensor]:
    """Return the class of the `tflite` package that reads a table."""
    found: Callable[[], Tensor] = getattr(importlib.import_module(f"tflite.{name}"), name)
    return found


def _signature(table: SignatureDef, where: str, subgraphs: Sequence[TfliteSubgraph]) -> TfliteSignature:
    """Decode a signature; its names must stand for inputs and outputs of its subgraph."""
    key = _text(table.SignatureKey())
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
        name, index = _text(entry.Name()), entry.TensorIndex()
        if index not in allowed:
            raise TfliteError(f"{where} {quoted(name)}: tensor must be one of the subgraph's, got index {index}")
        if name in names:
            raise TfliteError(f"{where} {quoted(name)}: names must be different, got this one twice")
        names[name] = index
    return names


def _metadata(model: Model, buffers: _Buffers) -> dict[str, _Bytes]:
    """Return the metadata blobs by name."""
    found: dict[str, _Bytes] = {}
    for entry in (model.Metadata(i) for i in range(model.MetadataLength())):
        name = _text(entry.Name())
        content = buffers.view(entry.Buffer(), f"metadata {quoted(name)}")
        found[name] = np.empty(0, np.uint8) if content is None else content
    return found

# SPDX-License-Identifier: Apache-2.0
"""Write small .tflite files, broken ones included: nothing given is checked.

Equal integer vectors, and operators and subgraphs given as the same object, are written once and shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import flatbuffers
import numpy as np
import tflite


@dataclass
class LevelSpec:
    """DENSE of a size; with segments or indices, SPARSE_CSR, each with the bits of its numbers (None: left out)."""

    size: int = 0
    segments: Sequence[int] | None = None
    indices: Sequence[int] | None = None
    bits: tuple[int, int] = (32, 32)
    format: int | None = None


@dataclass
class SparsitySpec:
    order: Sequence[int]
    block_map: Sequence[int]
    levels: Sequence[LevelSpec]


@dataclass
class TensorSpec:
    name: str | bytes
    type: int
    shape: Sequence[int]
    buffer: int = 0
    signature: Sequence[int] = ()
    scales: Sequence[float] = ()
    zero_points: Sequence[int] = ()
    quantized_dimension: int = 0
    details_type: int = 0
    is_variable: bool = False
    sparsity: SparsitySpec | None = None


@dataclass
class OperatorSpec:
    code: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str = "NONE"
    values: Mapping[str, int | float | bool | str | bytes | Sequence[int] | Sequence[float]] = field(
        default_factory=dict
    )
    tag: int | None = None
    intermediates: Sequence[int] = ()
    custom_options: bytes = b""


@dataclass
class CodeSpec:
    deprecated: int = 0
    builtin: int = 0
    custom: str | None = None
    version: int = 1


@dataclass
class SubgraphSpec:
    tensors: list[TensorSpec]
    operators: list[OperatorSpec]
    inputs: Sequence[int]
    outputs: Sequence[int]
    name: str = "main"


@dataclass
class SignatureSpec:
    key: str
    inputs: Sequence[tuple[str, int]]
    outputs: Sequence[tuple[str, int]]
    subgraph: int = 0


@dataclass
class External:
    """A buffer whose data lies behind the tables."""

    offset: int
    size: int


@dataclass
class FileSpec:
    codes: list[CodeSpec]
    subgraphs: list[SubgraphSpec]
    buffers: list[bytes | External]
    version: int = 3
    signatures: list[SignatureSpec] = field(default_factory=list)
    metadata: list[tuple[str, int]] = field(default_factory=list)

    def write(self) -> bytes:
        return _Writer().write(self)


class _Writer:
    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1024)
        self._shared: dict[object, int] = {}

    def write(self, file: FileSpec) -> bytes:
        model = self._table(
            "Model",
            OperatorCodes=self._offsets([self._code(code) for code in file.codes]),
            Subgraphs=self._offsets([self._subgraph(subgraph) for subgraph in file.subgraphs]),
            Description=self._builder.CreateString("written by a test"),
            Buffers=self._offsets([self._buffer(buffer) for buffer in file.buffers]),
            Metadata=self._offsets(
                [self._table("Metadata", Name=self._text(name), Buffer=buffer) for name, buffer in file.metadata]
            ),
            SignatureDefs=self._offsets([self._signature(signature) for signature in file.signatures]),
            Version=file.version,
        )
        self._builder.Finish(model, b"TFL3")
        return bytes(self._builder.Output())

    def _table(self, table: str, **fields: int | float | bool | None) -> int:
        getattr(tflite, f"{table}Start")(self._builder)
        for name, value in fields.items():
            if value is not None:
                getattr(tflite, f"{table}Add{name}")(self._builder, value)
        return int(getattr(tflite, f"{table}End")(self._builder))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def _array(self, values: Sequence[int] | Sequence[float], dtype: str) -> int | None:
        if not len(values):
            return None
        key = (dtype, tuple(values))
        if key not in self._shared:
            self._shared[key] = int(self._builder.CreateNumpyVector(np.array(values, dtype)))
        return self._shared[key]

    def _text(self, text: str | bytes) -> int:
        return int(self._builder.CreateString(text))

    def _code(self, code: CodeSpec) -> int:
        custom = None if code.custom is None else self._text(code.custom)
        fields = {"DeprecatedBuiltinCode": code.deprecated, "BuiltinCode": code.builtin, "Version": code.version}
        return self._table("OperatorCode", CustomCode=custom, **fields)

    def _buffer(self, buffer: bytes | External) -> int:
        if isinstance(buffer, External):
            return self._table("Buffer", Offset=buffer.offset, Size=buffer.size)
        return self._table("Buffer", Data=self._builder.CreateByteVector(buffer) if buffer else None)

    def _signature(self, signature: SignatureSpec) -> int:
        maps = [
            self._offsets([self._table("TensorMap", Name=self._text(name), TensorIndex=i) for name, i in entries])
            for entries in (signature.inputs, signature.outputs)
        ]
        key = self._text(signature.key)
        return self._table(
            "SignatureDef", Inputs=maps[0], Outputs=maps[1], SignatureKey=key, SubgraphIndex=signature.subgraph
        )

    def _subgraph(self, subgraph: SubgraphSpec) -> int:
        if id(subgraph) not in self._shared:
            self._shared[id(subgraph)] = self._table(
                "SubGraph",
                Tensors=self._offsets([self._tensor(tensor) for tensor in subgraph.tensors]),
                Operators=self._offsets([self._operator(operator) for operator in subgraph.operators]),
                Inputs=self._array(subgraph.inputs, "<i4"),
                Outputs=self._array(subgraph.outputs, "<i4"),
                Name=self._text(subgraph.name),
            )
        return self._shared[id(subgraph)]

    def _tensor(self, tensor: TensorSpec) -> int:
        quantization = None
        if tensor.scales or tensor.zero_points or tensor.details_type:
            quantization = self._table(
                "QuantizationParameters",
                Scale=self._array(tensor.scales, "<f4"),
                ZeroPoint=self._array(tensor.zero_points, "<i8"),
                QuantizedDimension=tensor.quantized_dimension,
                DetailsType=tensor.details_type,
            )
        return self._table(
            "Tensor",
            Shape=self._array(tensor.shape, "<i4"),
            ShapeSignature=self._array(tensor.signature, "<i4"),
            Name=self._text(tensor.name),
            Sparsity=None if tensor.sparsity is None else self._sparsity(tensor.sparsity),
            Quantization=quantization,
            Type=tensor.type,
            Buffer=tensor.buffer,
            IsVariable=tensor.is_variable,
        )

    def _sparsity(self, sparsity: SparsitySpec) -> int:
        return self._table(
            "SparsityParameters",
            TraversalOrder=self._array(sparsity.order, "<i4"),
            BlockMap=self._array(sparsity.block_map, "<i4"),
            DimMetadata=self._offsets([self._level(level) for level in sparsity.levels]),
        )

    def _level(self, level: LevelSpec) -> int:
        is_sparse = level.segments is not None or level.indices is not None
        types = {32: "Int32Vector", 16: "Uint16Vector", 8: "Uint8Vector"}
        fields: dict[str, int] = {}
        for name, values, bits in zip(
            ("ArraySegments", "ArrayIndices"), (level.segments, level.indices), level.bits, strict=True
        ):
            if values is not None:
                vector = self._array(values, {32: "<i4", 16: "<u2", 8: "u1"}[bits])
                fields[name] = self._table(types[bits], Values=vector)
                fields[f"{name}Type"] = getattr(tflite.SparseIndexVector, types[bits])
        number = int(is_sparse) if level.format is None else level.format
        return self._table("DimensionMetadata", Format=number, DenseSize=level.size, **fields)

    def _option(self, value: float | str | bytes | Sequence[int] | Sequence[float], integers: str) -> float | None:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes):
            return int(self._builder.CreateByteVector(value))
        if not isinstance(value, Sequence):
            return value
        return self._array(value, "<f4" if any(isinstance(item, float) for item in value) else integers)

    def _operator(self, operator: OperatorSpec) -> int:
        if id(operator) not in self._shared:
            options = None
            is_second = not hasattr(tflite.BuiltinOptions, operator.options)
            if operator.options != "NONE":
                integers = "<i8" if is_second else "<i4"
                values = {name: self._option(value, integers) for name, value in operator.values.items()}
                options = self._table(operator.options, **values)
            tags, field = (tflite.BuiltinOptions2, "Options2") if is_second else (tflite.BuiltinOptions, "Options")
            tag = getattr(tags, operator.options) if operator.tag is None else operator.tag
            self._shared[id(operator)] = self._table(
                "Operator",
                Inputs=self._array(operator.inputs, "<i4"),
                Outputs=self._array(operator.outputs, "<i4"),
                Intermediates=self._array(operator.intermediates, "<i4"),
                CustomOptions=self._builder.CreateByteVector(operator.custom_options)
                if operator.custom_options
                else None,
                OpcodeIndex=operator.code,
                **{f"Builtin{field}": options, f"Builtin{field}Type": tag},
            )
        return self._shared[id(operator)]

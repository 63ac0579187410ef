# SPDX-License-Identifier: Apache-2.0
"""The part of the .tflite schema that is read, as data: which field of which table is of which kind.

Field order gives the vtable slot, so unused fields are listed as SKIP. Numbers, names and defaults are those of
schema.fbs version 3; a test compares them with the accessors of the `tflite` package.
"""

from __future__ import annotations

import struct
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nn_runtime.tflite.builtin_operator import BuiltinOperator
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


def _table(name: str, /, **kinds: Kind | None) -> Table:
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


_OPTIONS = (
    _table(
        "Conv2DOptions",
        padding=INT8,
        stride_w=INT32,
        stride_h=INT32,
        fused_activation_function=INT8,
        dilation_w_factor=INT32.but(1),
        dilation_h_factor=INT32.but(1),
        quantized_bias_type=INT8,
    ),
    _table(
        "DepthwiseConv2DOptions",
        padding=INT8,
        stride_w=INT32,
        stride_h=INT32,
        depth_multiplier=INT32,
        fused_activation_function=INT8,
        dilation_w_factor=INT32.but(1),
        dilation_h_factor=INT32.but(1),
    ),
    _table(
        "Pool2DOptions",
        padding=INT8,
        stride_w=INT32,
        stride_h=INT32,
        filter_width=INT32,
        filter_height=INT32,
        fused_activation_function=INT8,
    ),
    _table(
        "TransposeConvOptions",
        padding=INT8,
        stride_w=INT32,
        stride_h=INT32,
        fused_activation_function=INT8,
        quantized_bias_type=INT8,
    ),
    _table(
        "Conv3DOptions",
        padding=INT8,
        stride_d=INT32,
        stride_w=INT32,
        stride_h=INT32,
        fused_activation_function=INT8,
        dilation_d_factor=INT32.but(1),
        dilation_w_factor=INT32.but(1),
        dilation_h_factor=INT32.but(1),
    ),
    _table(
        "FullyConnectedOptions",
        fused_activation_function=INT8,
        weights_format=INT8,
        keep_num_dims=BOOL,
        asymmetric_quantize_inputs=BOOL,
        quantized_bias_type=INT8,
    ),
    _table("SVDFOptions", rank=INT32, fused_activation_function=INT8, asymmetric_quantize_inputs=BOOL),
    _table("RNNOptions", fused_activation_function=INT8, asymmetric_quantize_inputs=BOOL),
    _table("SequenceRNNOptions", time_major=BOOL, fused_activation_function=INT8, asymmetric_quantize_inputs=BOOL),
    _table(
        "BidirectionalSequenceRNNOptions",
        time_major=BOOL,
        fused_activation_function=INT8,
        merge_outputs=BOOL,
        asymmetric_quantize_inputs=BOOL,
    ),
    _table(
        "LSTMOptions",
        fused_activation_function=INT8,
        cell_clip=FLOAT32,
        proj_clip=FLOAT32,
        kernel_type=INT8,
        asymmetric_quantize_inputs=BOOL,
    ),
    _table(
        "UnidirectionalSequenceLSTMOptions",
        fused_activation_function=INT8,
        cell_clip=FLOAT32,
        proj_clip=FLOAT32,
        time_major=BOOL,
        asymmetric_quantize_inputs=BOOL,
        diagonal_recurrent_tensors=BOOL,
    ),
    _table(
        "BidirectionalSequenceLSTMOptions",
        fused_activation_function=INT8,
        cell_clip=FLOAT32,
        proj_clip=FLOAT32,
        merge_outputs=BOOL,
        time_major=BOOL.but(True),
        asymmetric_quantize_inputs=BOOL,
    ),
    _table("AddOptions", fused_activation_function=INT8, pot_scale_int16=BOOL.but(True)),
    _table("SubOptions", fused_activation_function=INT8, pot_scale_int16=BOOL.but(True)),
    _table("MulOptions", fused_activation_function=INT8),
    _table("DivOptions", fused_activation_function=INT8),
    _table("L2NormOptions", fused_activation_function=INT8),
    _table("SoftmaxOptions", beta=FLOAT32),
    _table("LocalResponseNormalizationOptions", radius=INT32, bias=FLOAT32, alpha=FLOAT32, beta=FLOAT32),
    _table("LeakyReluOptions", alpha=FLOAT32),
    _table("GeluOptions", approximate=BOOL),
    _table("ConcatenationOptions", axis=INT32, fused_activation_function=INT8),
    _table("ReshapeOptions", new_shape=INT32S),
    _table("SqueezeOptions", squeeze_dims=INT32S),
    _table("SplitOptions", num_splits=INT32),
    _table("SplitVOptions", num_splits=INT32),
    _table("PackOptions", values_count=INT32, axis=INT32),
    _table("UnpackOptions", num=INT32, axis=INT32),
    _table("OneHotOptions", axis=INT32),
    _table("GatherOptions", axis=INT32, batch_dims=INT32),
    _table("ReducerOptions", keep_dims=BOOL),
    _table("ArgMaxOptions", output_type=INT8),
    _table("ArgMinOptions", output_type=INT8),
    _table("CumsumOptions", exclusive=BOOL, reverse=BOOL),
    _table("ReverseSequenceOptions", seq_dim=INT32, batch_dim=INT32),
    _table("MirrorPadOptions", mode=INT8),
    _table("SpaceToDepthOptions", block_size=INT32),
    _table("DepthToSpaceOptions", block_size=INT32),
    _table("ResizeBilinearOptions", new_height=SKIP, new_width=SKIP, align_corners=BOOL, half_pixel_centers=BOOL),
    _table("ResizeNearestNeighborOptions", align_corners=BOOL, half_pixel_centers=BOOL),
    _table(
        "StridedSliceOptions",
        begin_mask=INT32,
        end_mask=INT32,
        ellipsis_mask=INT32,
        new_axis_mask=INT32,
        shrink_axis_mask=INT32,
        offset=BOOL,
    ),
    _table("BatchMatMulOptions", adj_x=BOOL, adj_y=BOOL, asymmetric_quantize_inputs=BOOL),
    _table("CastOptions", in_data_type=INT8, out_data_type=INT8),
    _table("ShapeOptions", out_type=INT8),
    _table("UniqueOptions", idx_out_type=INT8.but(2)),
    _table("FakeQuantOptions", min=FLOAT32, max=FLOAT32, num_bits=INT32, narrow_range=BOOL),
    _table("SparseToDenseOptions", validate_indices=BOOL),
    _table("EmbeddingLookupSparseOptions", combiner=INT8),
    _table("LSHProjectionOptions", type=INT8),
    _table("SkipGramOptions", ngram_size=INT32, max_skip_size=INT32, include_all_ngrams=BOOL),
    _table("BucketizeOptions", boundaries=FLOAT32S),
    _table("RandomOptions", seed=INT64, seed2=INT64),
    _table("HashtableOptions", table_id=INT32, key_dtype=INT8, value_dtype=INT8),
    _table("VarHandleOptions", container=STRING, shared_name=STRING),
    _table("CallOptions", subgraph=UINT32),
    _table("CallOnceOptions", init_subgraph_index=INT32),
    _table("IfOptions", then_subgraph_index=INT32, else_subgraph_index=INT32),
    _table("WhileOptions", cond_subgraph_index=INT32, body_subgraph_index=INT32),
)

# Fields of builtin options that are subgraph indices.
SUBGRAPH_OPTIONS = (
    "subgraph",
    "init_subgraph_index",
    "then_subgraph_index",
    "else_subgraph_index",
    "cond_subgraph_index",
    "body_subgraph_index",
)

# The kinds of options by their tag, from 1 on.
_TAGS = (
    "Conv2DOptions",
    "DepthwiseConv2DOptions",
    "ConcatEmbeddingsOptions",
    "LSHProjectionOptions",
    "Pool2DOptions",
    "SVDFOptions",
    "RNNOptions",
    "FullyConnectedOptions",
    "SoftmaxOptions",
    "ConcatenationOptions",
    "AddOptions",
    "L2NormOptions",
    "LocalResponseNormalizationOptions",
    "LSTMOptions",
    "ResizeBilinearOptions",
    "CallOptions",
    "ReshapeOptions",
    "SkipGramOptions",
    "SpaceToDepthOptions",
    "EmbeddingLookupSparseOptions",
    "MulOptions",
    "PadOptions",
    "GatherOptions",
    "BatchToSpaceNDOptions",
    "SpaceToBatchNDOptions",
    "TransposeOptions",
    "ReducerOptions",
    "SubOptions",
    "DivOptions",
    "SqueezeOptions",
    "SequenceRNNOptions",
    "StridedSliceOptions",
    "ExpOptions",
    "TopKV2Options",
    "SplitOptions",
    "LogSoftmaxOptions",
    "CastOptions",
    "DequantizeOptions",
    "MaximumMinimumOptions",
    "ArgMaxOptions",
    "LessOptions",
    "NegOptions",
    "PadV2Options",
    "GreaterOptions",
    "GreaterEqualOptions",
    "LessEqualOptions",
    "SelectOptions",
    "SliceOptions",
    "TransposeConvOptions",
    "SparseToDenseOptions",
    "TileOptions",
    "ExpandDimsOptions",
    "EqualOptions",
    "NotEqualOptions",
    "ShapeOptions",
    "PowOptions",
    "ArgMinOptions",
    "FakeQuantOptions",
    "PackOptions",
    "LogicalOrOptions",
    "OneHotOptions",
    "LogicalAndOptions",
    "LogicalNotOptions",
    "UnpackOptions",
    "FloorDivOptions",
    "SquareOptions",
    "ZerosLikeOptions",
    "FillOptions",
    "BidirectionalSequenceLSTMOptions",
    "BidirectionalSequenceRNNOptions",
    "UnidirectionalSequenceLSTMOptions",
    "FloorModOptions",
    "RangeOptions",
    "ResizeNearestNeighborOptions",
    "LeakyReluOptions",
    "SquaredDifferenceOptions",
    "MirrorPadOptions",
    "AbsOptions",
    "SplitVOptions",
    "UniqueOptions",
    "ReverseV2Options",
    "AddNOptions",
    "GatherNdOptions",
    "CosOptions",
    "WhereOptions",
    "RankOptions",
    "ReverseSequenceOptions",
    "MatrixDiagOptions",
    "QuantizeOptions",
    "MatrixSetDiagOptions",
    "HardSwishOptions",
    "IfOptions",
    "WhileOptions",
    "DepthToSpaceOptions",
    "NonMaxSuppressionV4Options",
    "NonMaxSuppressionV5Options",
    "ScatterNdOptions",
    "SelectV2Options",
    "DensifyOptions",
    "SegmentSumOptions",
    "BatchMatMulOptions",
    "CumsumOptions",
    "CallOnceOptions",
    "BroadcastToOptions",
    "Rfft2dOptions",
    "Conv3DOptions",
    "HashtableOptions",
    "HashtableFindOptions",
    "HashtableImportOptions",
    "HashtableSizeOptions",
    "VarHandleOptions",
    "ReadVariableOptions",
    "AssignVariableOptions",
    "RandomOptions",
    "BucketizeOptions",
    "GeluOptions",
    "DynamicUpdateSliceOptions",
    "UnsortedSegmentProdOptions",
    "UnsortedSegmentMaxOptions",
    "UnsortedSegmentMinOptions",
    "UnsortedSegmentSumOptions",
    "ATan2Options",
    "SignOptions",
    "BitcastOptions",
    "BitwiseXorOptions",
    "RightShiftOptions",
)

# Operators whose options table is not named after them.
_OPTIONS_OF = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "MEAN": "ReducerOptions",
    "SUM": "ReducerOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
}

OPERATOR_NAMES: dict[int, str] = {
    code: name for name, code in vars(BuiltinOperator).items() if not name.startswith("_")
}
CUSTOM = BuiltinOperator.CUSTOM
# `deprecated_builtin_code` of operators that do not fit in its 8 bits.
PLACEHOLDER = 127


def _options_by_tag() -> dict[int, Table]:
    """Return every tag of the options union with its table; options without fields have an empty one."""
    described = {table.name: table for table in _OPTIONS}
    return {tag: described.get(name) or _table(name) for tag, name in enumerate(_TAGS, start=1)}


def _options_by_operator() -> dict[int, Table]:
    """Return the options table of each operator whose options have fields."""
    by_name = {table.name.lower(): table for table in _OPTIONS}
    names = {code: _OPTIONS_OF.get(name, name.replace("_", "") + "Options") for code, name in OPERATOR_NAMES.items()}
    return {code: by_name[name.lower()] for code, name in names.items() if name.lower() in by_name}


OPTIONS_BY_TAG = _options_by_tag()
OPTIONS_BY_OPERATOR = _options_by_operator()

QUANTIZATION = _table(
    "QuantizationParameters",
    min=SKIP,
    max=SKIP,
    scale=FLOAT32S,
    zero_point=INT64S,
    details_type=UINT8,
    details=SKIP,
    quantized_dimension=INT32,
)
_INDICES = Union(
    {
        1: _table("Int32Vector", values=INT32S),
        2: _table("Uint16Vector", values=UINT16S),
        3: _table("Uint8Vector", values=UINT8S),
    }
)
DIMENSION = _table(
    "DimensionMetadata",
    format=INT8,
    dense_size=INT32,
    array_segments_type=UINT8,
    array_segments=_INDICES,
    array_indices_type=UINT8,
    array_indices=_INDICES,
)
SPARSITY = _table("SparsityParameters", traversal_order=INT32S, block_map=INT32S, dim_metadata=Children(DIMENSION))
TENSOR = _table(
    "Tensor",
    shape=INT32S,
    type=INT8,
    buffer=UINT32,
    name=STRING,
    quantization=Child(QUANTIZATION),
    is_variable=BOOL,
    sparsity=Child(SPARSITY),
    shape_signature=INT32S,
)
OPERATOR = _table(
    "Operator",
    opcode_index=UINT32,
    inputs=INT32S,
    outputs=INT32S,
    builtin_options_type=UINT8,
    builtin_options=Union(OPTIONS_BY_TAG),
    custom_options=BLOB,
    custom_options_format=SKIP,
    mutating_variable_inputs=SKIP,
    intermediates=INT32S,
)
SUBGRAPH = _table(
    "SubGraph",
    tensors=Children(TENSOR),
    inputs=INT32S,
    outputs=INT32S,
    operators=Children(OPERATOR),
    name=STRING,
)
OPERATOR_CODE = _table(
    "OperatorCode", deprecated_builtin_code=INT8, custom_code=STRING, version=INT32.but(1), builtin_code=INT32
)
TENSOR_MAP = _table("TensorMap", name=STRING, tensor_index=UINT32)
SIGNATURE = _table(
    "SignatureDef",
    inputs=Children(TENSOR_MAP),
    outputs=Children(TENSOR_MAP),
    signature_key=STRING,
    deprecated_tag=SKIP,
    subgraph_index=UINT32,
)
MODEL = _table(
    "Model",
    version=UINT32,
    operator_codes=Children(OPERATOR_CODE),
    subgraphs=Children(SUBGRAPH),
    description=STRING,
    buffers=Children(_table("Buffer", data=BLOB, offset=UINT64, size=UINT64)),
    metadata_buffer=SKIP,
    metadata=Children(_table("Metadata", name=STRING, buffer=UINT32)),
    signature_defs=Children(SIGNATURE),
)

# SPDX-License-Identifier: Apache-2.0
"""The part of the .tflite schema that is read, as data: which field of which table is of which kind.

Field order gives the vtable slot, so unused fields are listed as SKIP. Numbers, names and defaults are those of
schema.fbs version 3; a test compares them with the accessors of the `tflite` package.
"""

from __future__ import annotations

from nn_runtime.tflite.fields import (
    BLOB,
    BOOL,
    FLOAT32S,
    INT8,
    INT32,
    INT32S,
    INT64S,
    SKIP,
    STRING,
    UINT8,
    UINT8S,
    UINT16S,
    UINT32,
    UINT64,
    Child,
    Children,
    Union,
    table,
)
from nn_runtime.tflite.options import OPTIONS_2_BY_TAG, OPTIONS_BY_TAG

QUANTIZATION = table(
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
        1: table("Int32Vector", values=INT32S),
        2: table("Uint16Vector", values=UINT16S),
        3: table("Uint8Vector", values=UINT8S),
    }
)
DIMENSION = table(
    "DimensionMetadata",
    format=INT8,
    dense_size=INT32,
    array_segments_type=UINT8,
    array_segments=_INDICES,
    array_indices_type=UINT8,
    array_indices=_INDICES,
)
SPARSITY = table("SparsityParameters", traversal_order=INT32S, block_map=INT32S, dim_metadata=Children(DIMENSION))
TENSOR = table(
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
OPERATOR = table(
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
    large_custom_options_offset=SKIP,
    large_custom_options_size=SKIP,
    builtin_options_2_type=UINT8,
    builtin_options_2=Union(OPTIONS_2_BY_TAG),
)
SUBGRAPH = table(
    "SubGraph",
    tensors=Children(TENSOR),
    inputs=INT32S,
    outputs=INT32S,
    operators=Children(OPERATOR),
    name=STRING,
)
OPERATOR_CODE = table(
    "OperatorCode", deprecated_builtin_code=INT8, custom_code=STRING, version=INT32.but(1), builtin_code=INT32
)
TENSOR_MAP = table("TensorMap", name=STRING, tensor_index=UINT32)
SIGNATURE = table(
    "SignatureDef",
    inputs=Children(TENSOR_MAP),
    outputs=Children(TENSOR_MAP),
    signature_key=STRING,
    deprecated_tag=SKIP,
    subgraph_index=UINT32,
)
MODEL = table(
    "Model",
    version=UINT32,
    operator_codes=Children(OPERATOR_CODE),
    subgraphs=Children(SUBGRAPH),
    description=STRING,
    buffers=Children(table("Buffer", data=BLOB, offset=UINT64, size=UINT64)),
    metadata_buffer=SKIP,
    metadata=Children(table("Metadata", name=STRING, buffer=UINT32)),
    signature_defs=Children(SIGNATURE),
)

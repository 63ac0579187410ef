# SPDX-License-Identifier: Apache-2.0
"""Files with one operator (or a short chain), and their results from LiteRT's reference kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
import tflite

from nn_runtime.tflite.types import TensorType
from tests.nn_runtime.tflite.tflite_file import (
    CodeSpec,
    FileSpec,
    OperatorSpec,
    SparsitySpec,
    SubgraphSpec,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Array = npt.NDArray[Any]

_ONLY_VERSION_1 = {
    *("COMPLEX_ABS", "IMAG", "REAL", "RFFT2D"),
    *("BROADCAST_ARGS", "CONV_3D", "CUMSUM", "MATRIX_DIAG", "MATRIX_SET_DIAG", "REVERSE_SEQUENCE"),
    *("ROUND", "SCATTER_ND", "SEGMENT_SUM", "BUCKETIZE"),
    *(f"UNSORTED_SEGMENT_{name}" for name in ("MAX", "MIN", "PROD", "SUM")),
    *("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE", "STABLEHLO_COMPOSITE", "ATAN2"),
    *("BATCH_TO_SPACE_ND", "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CEIL", "COS", "ELU"),
    *("DENSIFY", "EMBEDDING_LOOKUP", "EXP", "EXPAND_DIMS", "FILL", "FLOOR", "FLOOR_MOD", "GATHER", "HARD_SWISH"),
    *("HASHTABLE_LOOKUP", "IF", "L2_NORMALIZATION", "L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", "LOG"),
    *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "LSH_PROJECTION", "MIRROR_PAD", "NEG", "ONE_HOT", "POW"),
    *("PRELU", "RANK", "REDUCE_ALL", "REDUCE_ANY", "RELU_0_TO_1", "RELU_N1_TO_1", "RESHAPE", "REVERSE_V2"),
    *("RNN", "SHAPE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"),
    *("RSQRT", "SELECT_V2", "SIN", "SPACE_TO_BATCH_ND", "SQRT", "SQUARE", "SQUEEZE", "SVDF", "TILE", "TOPK_V2"),
    *("UNIDIRECTIONAL_SEQUENCE_RNN", "WHILE", "ZEROS_LIKE", "ADD_N", "ABS", "TRANSPOSE_CONV"),
    *("FLOOR_DIV", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "SQUARED_DIFFERENCE", "GELU", "BATCH_MATMUL"),
    *("LOG_SOFTMAX", "LEAKY_RELU", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "SELECT", "DEPTH_TO_SPACE"),
    *("SPACE_TO_DEPTH", "EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "MAXIMUM", "MINIMUM"),
    *("BITCAST", "BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_SHIFT_LEFT", "STABLEHLO_AND", "STABLEHLO_ADD"),
    *("STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", "STABLEHLO_PAD", "STABLEHLO_GATHER"),
    *("DILATE", "REDUCE_WINDOW", "CONV_3D_TRANSPOSE", "EMBEDDING_LOOKUP_SPARSE"),
}


_NEWER = {"STABLEHLO_CASE": 209}
"""Operators that came after the package `tflite`, by the schema's numbers."""


@dataclass
class Tensor:
    """An input without data, a constant with data."""

    type: TensorType
    shape: tuple[int, ...]
    scale: float | Sequence[float] = ()
    zero_point: int = 0
    data: Array | None = None
    quantized_dimension: int = 0
    is_variable: bool = False
    sparsity: SparsitySpec | None = None


def real(*shape: int) -> Tensor:
    return Tensor(TensorType.FLOAT32, shape)


def uint8(scale: float, zero_point: int, *shape: int) -> Tensor:
    return Tensor(TensorType.UINT8, shape, scale, zero_point)


def int8(scale: float, zero_point: int, *shape: int) -> Tensor:
    return Tensor(TensorType.INT8, shape, scale, zero_point)


def int32(*shape: int) -> Tensor:
    return Tensor(TensorType.INT32, shape)


def boolean(*shape: int) -> Tensor:
    return Tensor(TensorType.BOOL, shape)


def int64(*shape: int) -> Tensor:
    return Tensor(TensorType.INT64, shape)


def constant(
    values: npt.ArrayLike, scale: float | Sequence[float] = (), zero_point: int = 0, dimension: int = 0
) -> Tensor:
    array = np.asarray(values)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if array.dtype == np.int64:
        array = array.astype(np.int32)
    kind = next(kind for kind in TensorType if kind.dtype == array.dtype)
    return Tensor(kind, array.shape, scale, zero_point, array, dimension)


@dataclass
class Step:
    """One operator: its code's name, inputs and outputs by tensor number, options by the table's CamelCase names.

    `version`: the code's, else one that LiteRT knows.
    """

    code: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: str = "NONE"
    values: Mapping[str, int | float | bool | str | bytes | Sequence[int] | Sequence[float]] = field(
        default_factory=dict
    )
    intermediates: Sequence[int] = ()
    custom_options: bytes = b""
    version: int | None = None


@dataclass
class Graph:
    """A subgraph; tensor i is called t<i>."""

    tensors: Sequence[Tensor]
    steps: Sequence[Step]
    inputs: Sequence[int]
    outputs: Sequence[int]


def write(tensors: Sequence[Tensor], steps: Sequence[Step], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """Return a file with one subgraph."""
    return write_graphs([Graph(tensors, steps, inputs, outputs)])


def write_graphs(graphs: Sequence[Graph]) -> bytes:
    """Return a file; a code that is no builtin operator's is a custom one."""
    buffers: list[Any] = [b""]
    codes = list(dict.fromkeys((step.code, step.version) for graph in graphs for step in graph.steps))
    subgraphs = [
        SubgraphSpec(
            [_tensor_spec(number, tensor, buffers) for number, tensor in enumerate(graph.tensors)],
            [_operator_spec(step, codes) for step in graph.steps],
            graph.inputs,
            graph.outputs,
        )
        for graph in graphs
    ]
    return FileSpec([_code_spec(name, version) for name, version in codes], subgraphs, buffers).write()


def _tensor_spec(number: int, tensor: Tensor, buffers: list[Any]) -> TensorSpec:
    buffer = 0
    if tensor.data is not None:
        buffers.append(tensor.data.tobytes())
        buffer = len(buffers) - 1
    scales = [tensor.scale] if isinstance(tensor.scale, float) else list(tensor.scale)
    return TensorSpec(
        f"t{number}",
        tensor.type,
        tensor.shape,
        buffer,
        scales=scales,
        zero_points=[tensor.zero_point] * len(scales),
        quantized_dimension=tensor.quantized_dimension,
        is_variable=tensor.is_variable,
        sparsity=tensor.sparsity,
    )


def _operator_spec(step: Step, codes: list[tuple[str, int | None]]) -> OperatorSpec:
    return OperatorSpec(
        codes.index((step.code, step.version)),
        step.inputs,
        step.outputs,
        step.options,
        step.values,
        intermediates=step.intermediates,
        custom_options=step.custom_options,
    )


def _code_spec(name: str, version: int | None) -> CodeSpec:
    number = getattr(tflite.BuiltinOperator, name, _NEWER.get(name))
    if number is None:
        return CodeSpec(tflite.BuiltinOperator.CUSTOM, tflite.BuiltinOperator.CUSTOM, name, version or 1)
    if version is None:
        version = 1 if name in _ONLY_VERSION_1 else 2
    return CodeSpec(min(number, 127), number, version=version)


def random_inputs(tensors: Sequence[Tensor], seed: int = 0) -> list[Array]:
    """Return data for the tensors: floats in -4..4, quantised over the whole range, booleans, small integers."""
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for tensor in tensors:
        dtype = tensor.type.dtype
        if dtype is None or dtype.kind == "f":
            arrays.append(rng.uniform(-4, 4, tensor.shape).astype(dtype))
        elif dtype.kind == "b":
            arrays.append(rng.integers(0, 2, tensor.shape).astype(dtype))
        else:
            low, high = (-9, 9) if dtype.itemsize > 1 else (np.iinfo(dtype.char).min, np.iinfo(dtype.char).max)
            arrays.append(rng.integers(low, high + 1, tensor.shape).astype(dtype))
    return arrays


def reference(file: bytes, inputs: Sequence[Array], usual_kernels: bool = False) -> list[Array]:
    """Return the outputs of LiteRT's reference kernels; skips the test where LiteRT is not installed.

    `usual_kernels`: of its optimised ones; so too where an operator has no other.
    """
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    usual = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    kind = usual if usual_kernels else litert.OpResolverType.BUILTIN_REF
    try:
        interpreter = litert.Interpreter(model_content=file, experimental_op_resolver_type=kind, num_threads=1)
    except ValueError as error:
        if "Didn't find op" not in str(error):
            raise
        interpreter = litert.Interpreter(model_content=file, experimental_op_resolver_type=usual, num_threads=1)
    for details, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.resize_tensor_input(details["index"], array.shape)
    interpreter.allocate_tensors()
    for details, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]

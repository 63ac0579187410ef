# SPDX-License-Identifier: Apache-2.0
"""A small .tflite exporter: describe a network with `Graph`, `quantize` it to 8 bits, `serialize` it to a file's bytes.

Layouts are TFLite's: activations [batches, height, width, depth]; filters [depth_out, filter_height, filter_width,
depth_in], depthwise [1, filter_height, filter_width, depth_out]; fully connected weights [units, input_size].
Sources: TensorFlow's schema.fbs (the file format); TensorFlow Lite 8-bit quantization specification (scales).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite
from tflite import BuiltinOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FloatArray: TypeAlias = npt.NDArray[np.float32]
Constant: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.int32] | npt.NDArray[np.int8]

NO_ACTIVATION = tflite.ActivationFunctionType.NONE
RELU = tflite.ActivationFunctionType.RELU

SCHEMA_VERSION = 3
FILE_IDENTIFIER = b"TFL3"
BUFFER_ALIGNMENT = 16  # schema.fbs: Buffer.data has force_align: 16
TENSOR_TYPES = {
    np.dtype(np.float32): tflite.TensorType.FLOAT32,
    np.dtype(np.int32): tflite.TensorType.INT32,
    np.dtype(np.int8): tflite.TensorType.INT8,
}
# First version of each operator that takes int8 activations (and per-channel filters); float needs version 1.
INT8_OPERATOR_VERSIONS = {
    BuiltinOperator.ADD: 2,
    BuiltinOperator.AVERAGE_POOL_2D: 2,
    BuiltinOperator.CONV_2D: 3,
    BuiltinOperator.DEPTHWISE_CONV_2D: 3,
    BuiltinOperator.FULLY_CONNECTED: 4,
    BuiltinOperator.MAX_POOL_2D: 2,
    BuiltinOperator.RESHAPE: 1,
    BuiltinOperator.SOFTMAX: 2,
}
# Operators with inputs (activation, weights, bias) -> the weights' channel dimension; None: one scale for all weights.
WEIGHT_CHANNEL_DIMS = {
    BuiltinOperator.CONV_2D: 0,
    BuiltinOperator.DEPTHWISE_CONV_2D: 3,
    BuiltinOperator.FULLY_CONNECTED: None,
}
# Operators whose output must have the scale and zero point of their input.
SAME_QUANTIZATION = {BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MAX_POOL_2D, BuiltinOperator.RESHAPE}


@dataclass(frozen=True)
class Quantization:
    """real = scale * (q - zero_point): one pair for the tensor, or one for each index of `channel_dim`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    channel_dim: int = 0


SOFTMAX_QUANTIZATION = Quantization((1 / 256,), (-128,))


@dataclass(frozen=True)
class Tensor:
    """A value of the graph; `value` is set for constants only."""

    dims: tuple[int, ...]
    dtype: np.dtype[np.float32] | np.dtype[np.int32] | np.dtype[np.int8]
    value: Constant | None = None
    quantization: Quantization | None = None


@dataclass(frozen=True)
class Operator:
    """One operator: tensor names, and the fields of its options table (names as in schema.fbs, in upper camel case)."""

    code: int
    inputs: tuple[str, ...]
    output: str
    options_table: str
    options: Mapping[str, int | float] = field(default_factory=dict)


@dataclass
class Graph:
    """A network: tensors by name and operators in run order. Each `add_*` method returns the name of its output."""

    name: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def add_input(self, name: str, dims: tuple[int, ...]) -> str:
        """Declare a float32 input of the network."""
        self.inputs.append(name)
        return self._add_tensor(name, Tensor(dims, np.dtype(np.float32)))

    def add_conv_2d(self, name: str, source: str, weights: FloatArray, bias: FloatArray, activation: int) -> str:
        """CONV_2D, stride 1, SAME padding; weights [depth_out, height, width, depth_in], bias [depth_out]."""
        options = {"Padding": tflite.Padding.SAME, "StrideW": 1, "StrideH": 1, "FusedActivationFunction": activation}
        dims = (*self.tensors[source].dims[:3], weights.shape[0])
        inputs = (source, *self._add_weights(name, weights, bias))
        return self._add_operator(BuiltinOperator.CONV_2D, name, inputs, dims, "Conv2DOptions", options)

    def add_depthwise_conv_2d(
        self, name: str, source: str, weights: FloatArray, bias: FloatArray, activation: int
    ) -> str:
        """DEPTHWISE_CONV_2D, stride 1, SAME padding, multiplier 1; weights [1, height, width, depth], bias [depth]."""
        options = {
            "Padding": tflite.Padding.SAME,
            "StrideW": 1,
            "StrideH": 1,
            "DepthMultiplier": 1,
            "FusedActivationFunction": activation,
        }
        inputs = (source, *self._add_weights(name, weights, bias))
        dims = self.tensors[source].dims
        return self._add_operator(
            BuiltinOperator.DEPTHWISE_CONV_2D, name, inputs, dims, "DepthwiseConv2DOptions", options
        )

    def add_add(self, name: str, first: str, second: str, activation: int) -> str:
        """ADD of two tensors of the same dimensions."""
        dims = self.tensors[first].dims
        options = {"FusedActivationFunction": activation}
        return self._add_operator(BuiltinOperator.ADD, name, (first, second), dims, "AddOptions", options)

    def add_max_pool_2d(self, name: str, source: str, size: int) -> str:
        """MAX_POOL_2D over squares of `size` side by side (VALID padding)."""
        return self._add_pool(BuiltinOperator.MAX_POOL_2D, name, source, size)

    def add_average_pool_2d(self, name: str, source: str, size: int) -> str:
        """AVERAGE_POOL_2D over squares of `size` side by side (VALID padding)."""
        return self._add_pool(BuiltinOperator.AVERAGE_POOL_2D, name, source, size)

    def add_flatten(self, name: str, source: str) -> str:
        """RESHAPE to [batches, everything else]; the batches are left open (-1) so that the input may be resized."""
        batches, *rest = self.tensors[source].dims
        size = int(np.prod(rest))
        shape = self._add_constant(f"{name}/shape", np.array([-1, size], np.int32))
        return self._add_operator(BuiltinOperator.RESHAPE, name, (source, shape), (batches, size), "ReshapeOptions", {})

    def add_fully_connected(
        self, name: str, source: str, weights: FloatArray, bias: FloatArray, activation: int
    ) -> str:
        """FULLY_CONNECTED of [batches, input_size]; weights [units, input_size], bias [units]."""
        inputs = (source, *self._add_weights(name, weights, bias))
        dims = (self.tensors[source].dims[0], weights.shape[0])
        options = {"FusedActivationFunction": activation}
        return self._add_operator(BuiltinOperator.FULLY_CONNECTED, name, inputs, dims, "FullyConnectedOptions", options)

    def add_softmax(self, name: str, source: str) -> str:
        """SOFTMAX along the last dimension, beta 1."""
        dims = self.tensors[source].dims
        return self._add_operator(BuiltinOperator.SOFTMAX, name, (source,), dims, "SoftmaxOptions", {"Beta": 1.0})

    def _add_pool(self, code: int, name: str, source: str, size: int) -> str:
        batches, height, width, depth = self.tensors[source].dims
        options = {
            "Padding": tflite.Padding.VALID,
            "StrideW": size,
            "StrideH": size,
            "FilterWidth": size,
            "FilterHeight": size,
        }
        dims = (batches, height // size, width // size, depth)
        return self._add_operator(code, name, (source,), dims, "Pool2DOptions", options)

    def _add_operator(
        self,
        code: int,
        name: str,
        inputs: tuple[str, ...],
        dims: tuple[int, ...],
        options_table: str,
        options: Mapping[str, int | float],
    ) -> str:
        self.operators.append(Operator(code, inputs, name, options_table, options))
        return self._add_tensor(name, Tensor(dims, np.dtype(np.float32)))

    def _add_weights(self, name: str, weights: FloatArray, bias: FloatArray) -> tuple[str, str]:
        return self._add_constant(f"{name}/weights", weights), self._add_constant(f"{name}/bias", bias)

    def _add_constant(self, name: str, value: Constant) -> str:
        return self._add_tensor(name, Tensor(value.shape, value.dtype, value))

    def _add_tensor(self, name: str, tensor: Tensor) -> str:
        if name in self.tensors:
            raise ValueError(f"graph {self.name}: there is already a tensor {name!r}")
        self.tensors[name] = tensor
        return name


def quantize(graph: Graph, ranges: Mapping[str, tuple[float, float]], inputs: Mapping[str, Quantization]) -> Graph:
    """Return the int8 form of a float graph: int8 activations and weights, int32 biases, per-channel filters.

    `ranges` has (least, greatest) of every activation as seen on calibration data; `inputs` fixes the network's inputs.
    """
    tensors = {
        name: replace(graph.tensors[name], dtype=np.dtype(np.int8), quantization=quantization)
        for name, quantization in inputs.items()
    }
    for operator in graph.operators:
        tensors |= _quantize_constants(graph, operator, tensors)
        tensors[operator.output] = replace(
            graph.tensors[operator.output],
            dtype=np.dtype(np.int8),
            quantization=_output_quantization(operator, ranges, tensors),
        )
    return replace(graph, tensors=tensors)


def _output_quantization(
    operator: Operator, ranges: Mapping[str, tuple[float, float]], tensors: Mapping[str, Tensor]
) -> Quantization | None:
    if operator.code in SAME_QUANTIZATION:
        return tensors[operator.inputs[0]].quantization
    if operator.code == BuiltinOperator.SOFTMAX:
        return SOFTMAX_QUANTIZATION
    return _asymmetric_quantization(*ranges[operator.output])


def _asymmetric_quantization(least: float, greatest: float) -> Quantization:
    """Spread -128..127 over the range, widened to contain 0 so that 0 is exact."""
    least, greatest = min(least, 0.0), max(greatest, 0.0)
    if not greatest - least > 0:
        raise ValueError(f"cannot quantise an activation whose range is {least}..{greatest}")
    scale = (greatest - least) / 255
    return Quantization((scale,), (round(-128 - least / scale),))


def _quantize_constants(graph: Graph, operator: Operator, quantized: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if operator.code not in WEIGHT_CHANNEL_DIMS:
        return {name: graph.tensors[name] for name in operator.inputs if graph.tensors[name].value is not None}
    source, weights_name, bias_name = operator.inputs
    weights = _quantize_weights(graph.tensors[weights_name], WEIGHT_CHANNEL_DIMS[operator.code])
    return {weights_name: weights, bias_name: _quantize_bias(graph.tensors[bias_name], quantized[source], weights)}


def _quantize_weights(weights: Tensor, channel_dim: int | None) -> Tensor:
    """Quantise symmetrically to -127..127, by channel or (`channel_dim` None) with one scale."""
    value = _constant(weights)
    other_dims = tuple(dim for dim in range(value.ndim) if dim != channel_dim)
    peaks = np.abs(value).max(axis=other_dims, keepdims=True).astype(np.float64)
    if not peaks.all():
        raise ValueError("cannot quantise weights that are 0 for a whole output channel")
    scales = (peaks / 127).astype(np.float32)
    quantization = Quantization(tuple(scales.ravel().tolist()), (0,) * scales.size, channel_dim or 0)
    levels = np.rint(value / scales).clip(-127, 127).astype(np.int8)
    return Tensor(weights.dims, levels.dtype, levels, quantization)


def _quantize_bias(bias: Tensor, source: Tensor, weights: Tensor) -> Tensor:
    """Quantise to int32 with scale = source's scale * weights' scale, zero point 0."""
    scales = np.float32(_quantization(source).scales[0]) * np.array(_quantization(weights).scales, np.float32)
    levels = np.rint(_constant(bias) / scales.astype(np.float64))
    if np.abs(levels).max() > np.iinfo(np.int32).max:
        raise ValueError("cannot quantise a bias this large beside weights this small")
    value = levels.astype(np.int32)
    return Tensor(bias.dims, value.dtype, value, Quantization(tuple(scales.tolist()), (0,) * scales.size))


def _constant(tensor: Tensor) -> Constant:
    if tensor.value is None:
        raise ValueError("weights and bias must be constants")
    return tensor.value


def _quantization(tensor: Tensor) -> Quantization:
    if tensor.quantization is None:
        raise ValueError("tensor has no quantisation")
    return tensor.quantization


def serialize(graph: Graph) -> bytes:
    """Return the .tflite file of a graph, with one signature `serving_default` naming its inputs and outputs."""
    builder = flatbuffers.Builder(0)
    tensor_indexes = {name: index for index, name in enumerate(graph.tensors)}
    codes = sorted({operator.code for operator in graph.operators})
    subgraph = _write_subgraph(builder, graph, tensor_indexes, codes)
    # Buffer 0 is the empty one, by convention; every tensor has its own, empty where it is no constant.
    buffers = [_write_buffer(builder, None), *(_write_buffer(builder, t.value) for t in graph.tensors.values())]
    model = _write_table(
        builder,
        "Model",
        Version=SCHEMA_VERSION,
        OperatorCodes=_write_offsets(builder, [_write_operator_code(builder, graph, code) for code in codes]),
        Subgraphs=_write_offsets(builder, [subgraph]),
        Description=builder.CreateString(graph.name),
        Buffers=_write_offsets(builder, buffers),
        SignatureDefs=_write_offsets(builder, [_write_signature(builder, graph, tensor_indexes)]),
    )
    builder.Finish(model, file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


def _write_subgraph(
    builder: flatbuffers.Builder, graph: Graph, indexes: Mapping[str, int], codes: Sequence[int]
) -> int:
    tensors = [_write_tensor(builder, name, tensor, indexes[name] + 1) for name, tensor in graph.tensors.items()]
    operators = [_write_operator(builder, operator, indexes, codes) for operator in graph.operators]
    return _write_table(
        builder,
        "SubGraph",
        Tensors=_write_offsets(builder, tensors),
        Inputs=_write_indexes(builder, [indexes[name] for name in graph.inputs]),
        Outputs=_write_indexes(builder, [indexes[name] for name in graph.outputs]),
        Operators=_write_offsets(builder, operators),
        Name=builder.CreateString(graph.name),
    )


def _write_tensor(builder: flatbuffers.Builder, name: str, tensor: Tensor, buffer: int) -> int:
    fields = {
        "Shape": _write_indexes(builder, tensor.dims),
        "Type": TENSOR_TYPES[tensor.dtype],
        "Buffer": buffer,
        "Name": builder.CreateString(name),
        "HasRank": True,
    }
    if tensor.quantization is not None:
        fields["Quantization"] = _write_table(
            builder,
            "QuantizationParameters",
            Scale=builder.CreateNumpyVector(np.array(tensor.quantization.scales, np.float32)),
            ZeroPoint=builder.CreateNumpyVector(np.array(tensor.quantization.zero_points, np.int64)),
            QuantizedDimension=tensor.quantization.channel_dim,
        )
    return _write_table(builder, "Tensor", **fields)


def _write_operator(
    builder: flatbuffers.Builder, operator: Operator, indexes: Mapping[str, int], codes: Sequence[int]
) -> int:
    return _write_table(
        builder,
        "Operator",
        OpcodeIndex=codes.index(operator.code),
        Inputs=_write_indexes(builder, [indexes[name] for name in operator.inputs]),
        Outputs=_write_indexes(builder, [indexes[operator.output]]),
        BuiltinOptionsType=getattr(tflite.BuiltinOptions, operator.options_table),
        BuiltinOptions=_write_table(builder, operator.options_table, **operator.options),
    )


def _write_operator_code(builder: flatbuffers.Builder, graph: Graph, code: int) -> int:
    outputs = (graph.tensors[operator.output] for operator in graph.operators if operator.code == code)
    is_int8 = any(tensor.dtype == np.int8 for tensor in outputs)
    version = INT8_OPERATOR_VERSIONS[code] if is_int8 else 1
    return _write_table(builder, "OperatorCode", DeprecatedBuiltinCode=code, BuiltinCode=code, Version=version)


def _write_buffer(builder: flatbuffers.Builder, value: Constant | None) -> int:
    if value is None:
        return _write_table(builder, "Buffer")
    data = value.astype(value.dtype.newbyteorder("<")).tobytes()
    builder.Prep(BUFFER_ALIGNMENT, len(data))
    return _write_table(builder, "Buffer", Data=builder.CreateByteVector(data))


def _write_signature(builder: flatbuffers.Builder, graph: Graph, indexes: Mapping[str, int]) -> int:
    def write_names(names: Sequence[str]) -> int:
        maps = [
            _write_table(builder, "TensorMap", Name=builder.CreateString(name), TensorIndex=indexes[name])
            for name in names
        ]
        return _write_offsets(builder, maps)

    return _write_table(
        builder,
        "SignatureDef",
        Inputs=write_names(graph.inputs),
        Outputs=write_names(graph.outputs),
        SignatureKey=builder.CreateString("serving_default"),
        SubgraphIndex=0,
    )


def _write_table(builder: flatbuffers.Builder, table: str, **fields: float) -> int:
    """Write one table of schema.fbs; a field is a scalar or the offset of what was written before."""
    getattr(tflite, f"{table}Start")(builder)
    for name, value in fields.items():
        getattr(tflite, f"{table}Add{name}")(builder, value)
    return int(getattr(tflite, f"{table}End")(builder))


def _write_offsets(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _write_indexes(builder: flatbuffers.Builder, indexes: Sequence[int]) -> int:
    return int(builder.CreateNumpyVector(np.array(indexes, np.int32)))

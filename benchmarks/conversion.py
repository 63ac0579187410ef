# SPDX-License-Identifier: Apache-2.0
"""A network of convolutions from .tflite to ONNX, for the engines that read only that: the same weights, NCHW inside.

Numbers of 8 bits stay such: every operation stands between DequantizeLinear and QuantizeLinear, from which engines make
operations on 8 bits. What int8 is, but for weights, becomes uint8, 128 more: ONNX Runtime is fastest so on x86.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from networks import Array, operator_name, parse
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ai_edge_litert import schema_py_generated as schema

OPSET = 13
CHANNELS_FIRST = (0, 3, 1, 2)
CLAMPS = {0: None, 1: (0, np.inf), 3: (0, 6)}
"""Bounds by fused activation: none, RELU, RELU6."""
SAME = 0
"""Padding, else VALID."""
FLOAT32, INT32, UINT8, INT64, INT8 = 0, 2, 3, 4, 9
NUMBERS = {FLOAT32: np.float32, INT32: np.int32, UINT8: np.uint8, INT64: np.int64, INT8: np.int8}
"""By type of a tensor."""


def to_onnx(model: bytes) -> bytes:
    """Return the network as an ONNX file; raises ValueError for what such a network does not have."""
    content: bytes = _Converter(parse(model)).convert().SerializeToString()
    return content


class _Converter:
    def __init__(self, model: schema.ModelT) -> None:
        self._model = model
        self._graph = model.subgraphs[0]
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._stored: dict[int, str] = {}
        """What tensors hold, as they hold it."""
        self._real: dict[int, str] = {}
        """What they hold, as real numbers."""

    def convert(self) -> onnx.ModelProto:
        source, result = self._graph.inputs[0], self._graph.outputs[0]
        self._store(source, self._add("Transpose", ["input"], perm=CHANNELS_FIRST))
        for operator in self._graph.operators:
            self._operator(operator)
        is_picture = len(self._tensor(result).shape) == len(CHANNELS_FIRST)
        if is_picture or INT8 in (self._tensor(source).type, self._tensor(result).type):
            raise ValueError("pictures as results, and ends in int8, are not converted to ONNX here")
        ends = [
            helper.make_tensor_value_info(name, self._onnx_type(index), [int(n) for n in self._tensor(index).shape])
            for name, index in (("input", source), (self._stored[result], result))
        ]
        graph = helper.make_graph(self._nodes, "network", ends[:1], ends[1:], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def _operator(self, operator: schema.OperatorT) -> None:
        kind = operator_name(self._model, operator)
        if kind not in _CONVERSIONS:
            raise ValueError(f"{kind} is not converted to ONNX here")
        inputs = [self._real[i] for i in operator.inputs if i in self._real]
        value = _CONVERSIONS[kind](self, operator, inputs)
        if value is None:
            raise ValueError(f"{kind} with these options is not converted to ONNX here")
        self._compute(operator, value)

    def _sum(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        return self._add("Add", inputs) if len(inputs) == len(operator.inputs) else None

    def _average_pool(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        window = operator.builtinOptions.filterHeight, operator.builtinOptions.filterWidth
        return self._add("GlobalAveragePool", inputs) if window == self._picture(operator) else None

    def _mean(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        of_pictures = operator.builtinOptions.keepDims and sorted(self._numbers(operator.inputs[1])) == [1, 2]
        return self._add("GlobalAveragePool", inputs) if of_pictures else None

    def _reshape(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        return self._add("Flatten", inputs, axis=1) if self._picture(operator) == (1, 1) else None

    def _softmax(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        return self._add("Softmax", inputs, axis=-1) if operator.builtinOptions.beta == 1 else None

    def _quantize(self, _: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        return inputs[0]

    def _concatenation(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        axis = CHANNELS_FIRST.index(operator.builtinOptions.axis)
        return self._add("Concat", inputs, axis=axis) if len(inputs) == len(operator.inputs) else None

    def _resize(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        if not operator.builtinOptions.alignCorners:
            return None
        none = self._keep(np.array([], np.float32))
        sizes = self._keep(np.array(self._tensor(operator.outputs[0]).shape, np.int64)[list(CHANNELS_FIRST)])
        kinds = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
        return self._add("Resize", [*inputs, none, none, sizes], **kinds)

    def _arg_max(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        axis = CHANNELS_FIRST.index(int(self._numbers(operator.inputs[1])))
        return self._add("ArgMax", inputs, axis=axis, keepdims=0)

    def _convolution(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        return self._conv(operator, inputs, np.moveaxis(self._numbers(operator.inputs[1]), 3, 1), groups=1)

    def _depthwise(self, operator: schema.OperatorT, inputs: Sequence[str]) -> str | None:
        kernel = np.moveaxis(self._numbers(operator.inputs[1]), 3, 0)
        return self._conv(operator, inputs, kernel, groups=kernel.shape[0])

    def _conv(self, operator: schema.OperatorT, inputs: Sequence[str], kernel: Array, *, groups: int) -> str:
        """`kernel`: [out, in, height, width]."""
        _, weights, bias = operator.inputs
        options = operator.builtinOptions
        size, stride = kernel.shape[2:], (options.strideH, options.strideW)
        dilation = options.dilationHFactor, options.dilationWFactor
        pads = [(0, 0), (0, 0)]
        if options.padding == SAME:
            spans = [1 + (k - 1) * d for k, d in zip(size, dilation, strict=True)]
            pads = [_same_padding(*one) for one in zip(self._picture(operator), spans, stride, strict=True)]
        return self._add(
            "Conv", [*inputs, self._constant(weights, kernel), self._constant(bias, self._numbers(bias))],
            group=groups, kernel_shape=size, strides=stride, dilations=dilation,
            pads=[pads[0][0], pads[1][0], pads[0][1], pads[1][1]],
        )  # fmt: skip

    def _picture(self, operator: schema.OperatorT) -> tuple[int, ...]:
        """Return height and width of the first input."""
        return tuple(int(size) for size in self._tensor(operator.inputs[0]).shape[1:3])

    def _compute(self, operator: schema.OperatorT, value: str) -> None:
        """Make real numbers the output of an operator, with its activation and as the output stores them."""
        activation = getattr(operator.builtinOptions, "fusedActivationFunction", 0)
        if activation not in CLAMPS:
            raise ValueError(f"activation {activation} is not converted to ONNX here")
        if (bounds := CLAMPS[activation]) is not None:
            value = self._add("Clip", [value, *(self._keep(np.array(bound, np.float32)) for bound in bounds)])
        result = operator.outputs[0]
        if self._is_quantized(result):
            value = self._add("QuantizeLinear", [value, *self._quantization(result)])
        self._store(result, value)

    def _store(self, index: int, stored: str) -> None:
        """Make a value what a tensor holds."""
        self._stored[index] = self._real[index] = stored
        if self._is_quantized(index):
            self._real[index] = self._add("DequantizeLinear", [stored, *self._quantization(index)])

    def _constant(self, index: int, numbers: Array) -> str:
        """Return the name of the real numbers that a constant stands for, with its channels, if any, first."""
        name = self._keep(numbers)
        if not self._is_quantized(index):
            return name
        return self._add("DequantizeLinear", [name, *self._quantization(index)], axis=0)

    def _numbers(self, index: int) -> Array:
        """Return a constant as it is stored."""
        tensor = self._tensor(index)
        data = self._model.buffers[tensor.buffer].data
        if data is None or tensor.type not in NUMBERS:
            raise ValueError("weights that are not constant, or of a type like float16, are not converted to ONNX here")
        values: Array = np.asarray(data, np.uint8).view(NUMBERS[tensor.type]).reshape(tensor.shape)
        return values

    def _is_quantized(self, index: int) -> bool:
        quantization = self._tensor(index).quantization
        return quantization is not None and quantization.scale is not None and len(quantization.scale) > 0

    def _quantization(self, index: int) -> Sequence[str]:
        """Return the names of scale and zero point, numbers or [channels]; 32 bits have no zero point."""
        tensor = self._tensor(index)
        scales = np.asarray(tensor.quantization.scale, np.float32)
        zero_points = np.asarray(tensor.quantization.zeroPoint).astype(NUMBERS[tensor.type])
        if tensor.type == INT8 and self._model.buffers[tensor.buffer].data is None:
            zero_points = zero_points.view(np.uint8) ^ np.uint8(128)
        parts = [scales] if tensor.type == INT32 else [scales, zero_points]
        return [self._keep(part if scales.size > 1 else part.reshape(())) for part in parts]

    def _onnx_type(self, index: int) -> int:
        dtype = NUMBERS[self._tensor(index).type]
        kind: int = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64 if dtype == np.int32 else dtype))
        return kind  # of integers: ONNX counts places by 64 bits

    def _tensor(self, index: int) -> schema.TensorT:
        return self._graph.tensors[index]

    def _keep(self, data: Array) -> str:
        name = f"constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(data, order="C"), name))
        return name

    def _add(self, kind: str, inputs: Sequence[str], **attributes: object) -> str:
        name = f"{kind}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name


_CONVERSIONS: Mapping[str, Callable[[_Converter, schema.OperatorT, Sequence[str]], str | None]] = {
    "ADD": _Converter._sum,
    "ARG_MAX": _Converter._arg_max,
    "AVERAGE_POOL_2D": _Converter._average_pool,
    "CONCATENATION": _Converter._concatenation,
    "CONV_2D": _Converter._convolution,
    "DEPTHWISE_CONV_2D": _Converter._depthwise,
    "MEAN": _Converter._mean,
    "QUANTIZE": _Converter._quantize,
    "RESHAPE": _Converter._reshape,
    "RESIZE_BILINEAR": _Converter._resize,
    "SOFTMAX": _Converter._softmax,
}
"""What makes real numbers of an operator's; None for options that it does not take."""


def _same_padding(size: int, filter_size: int, stride: int) -> tuple[int, int]:
    total = max(0, (-(-size // stride) - 1) * stride + filter_size - size)
    return total // 2, total - total // 2

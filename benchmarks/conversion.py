# SPDX-License-Identifier: Apache-2.0
"""A float MobileNet from .tflite to ONNX, for the engines that read only that: the same weights, NCHW inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from networks import Array, operator_name, parse
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as schema

OPSET = 13
RELU6, NO_ACTIVATION = 3, 0


def to_onnx(model: bytes) -> bytes:
    """Return the network as an ONNX file; raises ValueError for what a float MobileNet does not have."""
    content: bytes = _Converter(parse(model)).convert().SerializeToString()
    return content


class _Converter:
    def __init__(self, model: schema.ModelT) -> None:
        self._model = model
        self._graph = model.subgraphs[0]
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def convert(self) -> onnx.ModelProto:
        source, result = self._graph.inputs[0], self._graph.outputs[0]
        self._add("Transpose", ["input"], _name(source), perm=[0, 3, 1, 2])
        for operator in self._graph.operators:
            self._operator(operator)
        ends = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [int(one) for one in tensor.shape])
            for name, tensor in (("input", self._graph.tensors[source]), (_name(result), self._graph.tensors[result]))
        ]
        graph = helper.make_graph(self._nodes, "network", ends[:1], ends[1:], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def _operator(self, operator: schema.OperatorT) -> None:
        kind, options = operator_name(self._model, operator), operator.builtinOptions
        inputs, output = [_name(i) for i in operator.inputs], _name(operator.outputs[0])
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            self._convolution(operator, is_depthwise=kind != "CONV_2D")
        elif kind == "ADD":
            self._add("Add", inputs, output)
        elif kind == "AVERAGE_POOL_2D":
            self._add("GlobalAveragePool", inputs, output)
        elif kind == "RESHAPE":
            self._add("Flatten", inputs[:1], output, axis=1)
        elif kind == "SOFTMAX" and options.beta == 1:
            self._add("Softmax", inputs, output, axis=-1)
        else:
            raise ValueError(f"{kind} is not converted to ONNX here")

    def _convolution(self, operator: schema.OperatorT, *, is_depthwise: bool) -> None:
        source, weights, bias = operator.inputs
        options, output = operator.builtinOptions, _name(operator.outputs[0])
        data = self._constant(weights)
        kernel = np.moveaxis(data, 3, 0 if is_depthwise else 1)  # [out, in, height, width]
        self._keep(f"weights{weights}", kernel)
        self._keep(f"bias{bias}", self._constant(bias))
        size, stride = kernel.shape[2:], (options.strideH, options.strideW)
        shape = self._graph.tensors[source].shape[1:3]
        pads = [_same_padding(int(n), k, s) for n, k, s in zip(shape, size, stride, strict=True)]
        is_clamped = options.fusedActivationFunction == RELU6
        if not is_clamped and options.fusedActivationFunction != NO_ACTIVATION:
            raise ValueError("only RELU6 is converted to ONNX here")
        self._add(
            "Conv", [_name(source), f"weights{weights}", f"bias{bias}"], f"{output}_sum" if is_clamped else output,
            group=kernel.shape[0] if is_depthwise else 1, kernel_shape=size, strides=stride,
            pads=[pads[0][0], pads[1][0], pads[0][1], pads[1][1]],
        )  # fmt: skip
        if is_clamped:
            self._keep("zero", np.array(0, np.float32))
            self._keep("six", np.array(6, np.float32))
            self._add("Clip", [f"{output}_sum", "zero", "six"], output)

    def _constant(self, index: int) -> Array:
        tensor = self._graph.tensors[index]
        data = self._model.buffers[tensor.buffer].data
        if data is None or tensor.type != 0:
            raise ValueError("only constant float32 weights are converted to ONNX here")
        values: Array = np.asarray(data, np.uint8).view(np.float32).reshape(tensor.shape)
        return values

    def _keep(self, name: str, data: Array) -> None:
        if all(one.name != name for one in self._constants):
            self._constants.append(numpy_helper.from_array(np.ascontiguousarray(data), name))

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: object) -> None:
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))


def _name(tensor: int) -> str:
    return f"tensor{tensor}"


def _same_padding(size: int, filter_size: int, stride: int) -> tuple[int, int]:
    total = max(0, (-(-size // stride) - 1) * stride + filter_size - size)
    return total // 2, total - total // 2

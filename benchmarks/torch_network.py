# SPDX-License-Identifier: Apache-2.0
"""A network of `conversion.to_onnx`, of real numbers, as a module of PyTorch with the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Network(torch.nn.Module):  # type: ignore[misc]  # torch is not in the environment of the type checker
    """Takes [batches, height, width, channels] as the file does; channels are last in memory all the way."""

    def __init__(self, content: bytes) -> None:
        """Take the content of an ONNX file; raises ValueError for an operator that such networks do not have."""
        super().__init__()
        graph = onnx.load_from_string(content).graph
        unknown = {node.op_type for node in graph.node} - set(_OPERATORS)
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: not converted to PyTorch here")
        self._numbers: dict[str, float] = {}
        for constant in graph.initializer:
            values = numpy_helper.to_array(constant)
            if values.ndim:
                self.register_buffer(constant.name, torch.from_numpy(values.copy()))
            else:
                self._numbers[constant.name] = float(values)
        self._nodes = [
            (node.op_type, tuple(node.input), node.output[0],
             {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute})
            for node in graph.node
        ]  # fmt: skip
        self._source, self._result = graph.input[0].name, graph.output[0].name

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """Return the network's output."""
        values = {self._source: source, **dict(self.named_buffers()), **self._numbers}
        for kind, inputs, output, attributes in self._nodes:
            values[output] = _OPERATORS[kind]([values[name] for name in inputs], attributes)
        return values[self._result]


def _convolution(inputs: Sequence[torch.Tensor], attributes: Mapping[str, Any]) -> torch.Tensor:
    source, weights, bias = inputs
    top, left, bottom, right = attributes["pads"]
    padding: tuple[int, int] = (top, left)
    if padding != (bottom, right):
        source, padding = functional.pad(source, (left, right, top, bottom)), (0, 0)
    return functional.conv2d(
        source, weights, bias, attributes["strides"], padding, attributes["dilations"], attributes["group"]
    )


_OPERATORS: Mapping[str, Callable[[Sequence[torch.Tensor], Mapping[str, Any]], torch.Tensor]] = {
    "Add": lambda inputs, _: inputs[0] + inputs[1],
    "Clip": lambda inputs, _: torch.clamp(*inputs),
    "Conv": _convolution,
    "Flatten": lambda inputs, attributes: inputs[0].flatten(attributes["axis"]),
    "GlobalAveragePool": lambda inputs, _: inputs[0].mean((2, 3), keepdim=True),
    "Softmax": lambda inputs, attributes: torch.softmax(inputs[0], attributes["axis"]),
    "Transpose": lambda inputs, attributes: inputs[0].permute(*attributes["perm"]),
}

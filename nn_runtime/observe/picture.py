# SPDX-License-Identifier: Apache-2.0
"""A model as a picture for people, in the DOT language of graphviz: what flows, from operation to operation.

Constants stand as lines in the box of their operation, tensors between operations as labels of the arrows (with their
names where several reach an operation), inputs and outputs of the model as black nodes. `graph_dump.dot` is the
complete form, with a node for every operand.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from nn_runtime.codes import OEM_OPERATION, FuseCode, is_extension_code, operand_type_name, operation_name
from nn_runtime.hal.types import CONSTANT_LIFETIMES, OperandLifeTime
from nn_runtime.hal.views import constant_array, operation_view
from nn_runtime.observe.graph_dump import quoted
from nn_runtime.operand import is_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.hal.types import Model, Operand, Operation, Subgraph

_STYLE = (
    "node [shape=box style=\"rounded,filled\" fillcolor=\"#eef3fa\" color=\"#5878a8\" fontname=Helvetica fontsize=11]",
    "edge [color=\"#5878a8\" fontname=Helvetica fontsize=9]",
)  # fmt: skip
_END = "shape=oval style=filled fillcolor=black fontcolor=white"
_MAX_VALUES = 6
"""Constants of at most so many values are written out."""
_WORDS: Mapping[str, Mapping[int, str]] = {
    "activation": {**{code.value: code.name for code in FuseCode}, 4: "TANH", 6: "SIGMOID"},
    "padding_scheme": {1: "SAME", 2: "VALID"},
}
"""What the numbers of a scalar mean, by the name of the input; 4 and 6 belong to recurrent operations alone."""


def picture(model: Model, name: str = "model") -> str:
    """Return a model as DOT text; referenced models are drawn beside the main one, in frames of their own."""
    lines = [f"digraph {quoted(name)} {{", *(f"  {line}" for line in _STYLE), *_graph(model, model.main, "m")]
    for at, graph in enumerate(model.referenced):
        inner = _graph(model, graph, f"r{at}_")
        title = f"label={quoted(f'referenced model {at}')} fontname=Helvetica fontsize=11"
        lines += [f"  subgraph cluster_{at} {{", f"    {title}", *(f"  {line}" for line in inner), "  }"]
    lines.append("}")
    return "\n".join(lines) + "\n"


def _graph(model: Model, graph: Subgraph, prefix: str) -> list[str]:
    """Return the nodes and arrows of one graph; `prefix` keeps the names of graphs apart."""
    sources: dict[int, str] = {}
    lines: list[str] = []
    for at, index in enumerate(graph.input_indexes):
        sources[index] = f"{prefix}i{at}"
        lines.append(f"  {sources[index]} [{_END} label={quoted(_end(f'input {at}', graph.operands[index]))}]")
    for number, operation in enumerate(graph.operations):
        node = f"{prefix}n{number}"
        lines.append(f"  {node} [label={quoted(_operation(model, graph, number, operation))}]")
        flowing = [(place, index) for place, index in enumerate(operation.inputs) if index in sources]
        names = _argument_names(model, graph, operation) if len(flowing) > 1 else {}
        lines += [_arrow(sources[i], node, names.get(place, ""), graph.operands[i]) for place, i in flowing]
        sources.update(dict.fromkeys(operation.outputs, node))
    for at, index in enumerate(graph.output_indexes):
        node = f"{prefix}o{at}"
        lines.append(f"  {node} [{_END} label={quoted(_end(f'output {at}', graph.operands[index]))}]")
        if index in sources:
            lines.append(f"  {sources[index]} -> {node}")
    return lines


def _operation(model: Model, graph: Subgraph, number: int, operation: Operation) -> str:
    """Return the lines of a box: number and name, constant tensors one a line, scalars together."""
    names = _argument_names(model, graph, operation)
    tensors: list[str] = []
    scalars: list[str] = []
    for place, index in enumerate(operation.inputs):
        operand = graph.operands[index]
        name = names.get(place, str(place))
        if operand.lifetime == OperandLifeTime.SUBGRAPH:
            scalars.append(f"{name} = referenced model {operand.location.offset}")
        elif operand.lifetime in CONSTANT_LIFETIMES:
            (tensors if is_tensor(operand.type) else scalars).append(f"{name} {_value(model, operand, name)}")
    lines = [f"{number}: {operation_name(operation.type)}", *tensors]
    lines += [", ".join(scalars[at : at + 3]) for at in range(0, len(scalars), 3)]
    return "\n".join(lines)


def _argument_names(model: Model, graph: Subgraph, operation: Operation) -> Mapping[int, str]:
    """Return what the specification calls the inputs, by their place; nothing for a vendor's operation.

    Those of one name, as the inputs of CONCATENATION, have a number behind it.
    """
    if is_extension_code(operation.type) or operation.type == OEM_OPERATION:
        return {}
    view = operation_view(model, graph, operation)
    names = [argument.name for argument in view.arguments]
    numbers = {name: itertools.count() for name in names if names.count(name) > 1}
    return {place: f"{name} {next(numbers[name])}" if name in numbers else name for place, name in enumerate(names)}


def _value(model: Model, operand: Operand, name: str) -> str:
    """Return a constant: its values where they are few (a word for a code), else its type and dimensions."""
    value = None if is_extension_code(operand.type) else constant_array(model, operand)
    if value is None or value.size > _MAX_VALUES:
        return _type(operand)
    if not value.ndim and (word := _WORDS.get(name, {}).get(value.item())):
        return f"= {word}"
    values = [f"{number:g}" if isinstance(number, float) else str(number) for number in value.reshape(-1).tolist()]
    return f"= [{', '.join(values)}]" if value.ndim else f"= {values[0]}"


def _type(operand: Operand) -> str:
    return " ".join(filter(None, (operand_type_name(operand.type).removeprefix("TENSOR_"), _sizes(operand))))


def _sizes(operand: Operand) -> str:
    return "x".join(str(size or "?") for size in operand.dimensions)


def _end(what: str, operand: Operand) -> str:
    return f"{what}\n{_type(operand)}"


def _arrow(source: str, target: str, name: str, operand: Operand) -> str:
    label = ": ".join(filter(None, (name, _sizes(operand))))
    return f"  {source} -> {target}{f' [label={quoted(label)}]' if label else ''}"

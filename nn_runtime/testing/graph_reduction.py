# SPDX-License-Identifier: Apache-2.0
"""A failing random graph made small: fewer operations, then smaller tensors; and printed as a script of its own."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode
from nn_runtime.errors import NNError
from nn_runtime.hal.types import HalError
from nn_runtime.operand import ChannelQuant, is_tensor
from nn_runtime.operations import OperationView, output_dimensions, validate
from nn_runtime.testing.conformance import Unsupported
from nn_runtime.testing.random_graph import Node, RandomGraph, compare, evaluated, generate, unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nn_runtime.hal.interfaces import IDevice
    from nn_runtime.testing.drawing import Value
    from nn_runtime.testing.random_graph import Size

    Fails = Callable[[RandomGraph], bool]

_LITERAL_ELEMENTS = 32


def check_seed(seed: int, size: Size, first: IDevice, second: IDevice) -> str:
    """Compare the graph of a seed on two devices; return "" or a report that ends in a script with the smallest graph.

    The graph has only operations that both devices support.
    """
    graph = generate(seed, size, first, [second])
    problem = compare(graph, first, second)
    if not problem:
        return ""
    smallest = reduce_graph(graph, lambda candidate: bool(compare(candidate, first, second)), first)
    return (
        f"seed {seed}, {size.value} graph: {second.name} against {first.name}: {problem}\n"
        f"smallest graph ({', '.join(smallest.operation_names)}): {compare(smallest, first, second)}\n\n"
        f"{script_of(smallest, first.name, second.name)}"
    )


def reduce_graph(graph: RandomGraph, fails: Fails, reference: IDevice) -> RandomGraph:
    """Return the smallest graph found that still fails; values in its midst become inputs with the reference's data."""
    graph = _fewer_operations(graph, fails)
    fixed = replace(graph, dynamic=False)
    if graph.dynamic and fails(fixed):
        graph = fixed
    return _smaller_tensors(graph, fails, reference)


def _fewer_operations(graph: RandomGraph, fails: Fails) -> RandomGraph:
    """Leave out runs of operations, long ones first, while the rest still fails."""
    length = len(graph.nodes) // 2
    while length:
        start = 0
        while start < len(graph.nodes) and len(graph.nodes) > 1:
            rest = graph.nodes[:start] + graph.nodes[start + length :]
            candidate = _with_nodes(graph, rest) if rest else None
            if candidate is not None and fails(candidate):
                graph = candidate
            else:
                start += length
        length //= 2
    return _fewer_outputs(graph, fails)


def _fewer_outputs(graph: RandomGraph, fails: Fails) -> RandomGraph:
    """Leave the model only the outputs that nothing reads, if it still fails so."""
    candidate = replace(graph, outputs=tuple(unread(graph.nodes)))
    return candidate if len(candidate.outputs) < len(graph.outputs) and fails(candidate) else graph


def _with_nodes(graph: RandomGraph, nodes: tuple[Node, ...]) -> RandomGraph:
    made = {id(value) for node in nodes for value in node.outputs}
    outputs = {id(value): value for value in unread(nodes)}
    outputs.update({id(value): value for value in graph.outputs if id(value) in made})
    return replace(graph, nodes=nodes, outputs=tuple(outputs.values()))


def _smaller_tensors(graph: RandomGraph, fails: Fails, reference: IDevice) -> RandomGraph:
    """Cut sizes of the sources while the operations stay valid and the graph still fails."""
    progress = True
    while progress:
        progress = False
        for cut in _cuts(graph):
            candidate = _with_sources(graph, cut, reference)
            if candidate is not None and fails(candidate):
                graph, progress = candidate, True
                break
    return graph


def _cuts(graph: RandomGraph) -> Iterator[Mapping[int, Value]]:
    """Yield replacements of sources: one size cut wherever it occurs, or along one axis of one tensor."""
    parameters = {id(value) for node in graph.nodes for value in _parameters(node)}
    tensors = [v for v in graph.sources if v.array is not None and is_tensor(v.type) and id(v) not in parameters]
    sizes = sorted({size for value in tensors for size in value.dimensions if size > 1}, reverse=True)
    for size in sizes:
        for smaller in _smaller(size):
            yield {id(value): _cut(value, size, smaller) for value in tensors if size in value.dimensions}
    for value in tensors:
        for axis, size in enumerate(value.dimensions):
            for smaller in _smaller(size) if size > 1 else ():
                yield {id(value): _cut(value, size, smaller, axis)}


def _smaller(size: int) -> Sequence[int]:
    return sorted({1, size // 2, size - 1} - {0})


def _parameters(node: Node) -> list[Value]:
    view = OperationView(node.code, node.inputs, node.outputs)
    return [node.inputs[i] for i in view.shape_inputs()]


def _cut(value: Value, size: int, smaller: int, only_axis: int | None = None) -> Value:
    """Return a value with axes of a size (or one of them) cut to a smaller one."""
    array, quant = value.array, value.channel_quant
    if array is None:
        return value
    axes = [axis for axis, length in enumerate(array.shape) if length == size and only_axis in (None, axis)]
    for axis in axes:
        array = array[(slice(None),) * axis + (slice(smaller),)]
    if quant is not None and quant.channel_dim in axes:
        quant = ChannelQuant(quant.scales[:smaller], quant.channel_dim)
    return replace(value, array=array.copy(), dimensions=array.shape, channel_quant=quant)


def _with_sources(graph: RandomGraph, replaced: Mapping[int, Value], reference: IDevice) -> RandomGraph | None:
    """Return the graph over other sources, evaluated anew; None where an operation does not take them."""
    values = dict(replaced)
    nodes = []
    for node in graph.nodes:
        inputs = tuple(values.get(id(value), value) for value in node.inputs)
        view = OperationView(node.code, inputs, node.outputs)
        try:
            validate(view)
            shapes = output_dimensions(view)
            if any(0 in dims for dims in shapes):
                return None
            outputs = tuple(replace(v, dimensions=dims) for v, dims in zip(node.outputs, shapes, strict=True))
            new = evaluated(Node(node.code, inputs, outputs), reference)
        except (NNError, HalError, Unsupported):
            return None
        values.update({id(old): made for old, made in zip(node.outputs, new.outputs, strict=True)})
        nodes.append(new)
    return replace(graph, nodes=tuple(nodes), outputs=tuple(values[id(value)] for value in graph.outputs))


def script_of(graph: RandomGraph, wanted_from: str, got_from: str) -> str:
    """Return a Python script that runs a graph on two devices, by name, and compares them."""
    index: dict[int, int] = {}
    lines = []
    sources = {id(value) for value in graph.sources}
    for node in graph.nodes:
        for value in (*node.inputs, *node.outputs):
            if id(value) not in index:
                index[id(value)] = len(index)
                lines += _operand_lines(value, index[id(value)], id(value) in sources, graph.dynamic)
        indexes = [[index[id(value)] for value in values] for values in (node.inputs, node.outputs)]
        lines.append(f"model.add_operation(nn.OperationCode.{node.code.name}, {indexes[0]}, {indexes[1]})")
    inputs = graph.inputs
    input_indexes = [index[id(value)] for value in inputs]
    output_indexes = [index[id(value)] for value in graph.outputs]
    types = [f"nn.OperandCode.{OperandCode(value.type).name}" for value in graph.outputs]
    return _SCRIPT.format(
        title=f"seed {graph.seed}, {graph.size.value} graph: {', '.join(graph.operation_names)}",
        model="\n".join(lines),
        inputs=input_indexes,
        outputs=output_indexes,
        arrays="\n".join(f"    {_literal(value)}," for value in inputs),
        buffers="\n".join(f"    np.zeros({list(v.dimensions)}, np.{_dtype_name(v)})," for v in graph.outputs),
        types=", ".join(types),
        criterion=graph.criterion.name.upper().replace(" ", "_"),
        wanted=wanted_from,
        got=got_from,
    )


def _operand_lines(value: Value, index: int, is_source: bool, dynamic: bool) -> list[str]:
    code = f"nn.OperandCode.{OperandCode(value.type).name}"
    dims = [0] * len(value.dimensions) if dynamic and not is_source else list(value.dimensions)
    arguments = f"{code}, {dims}, {value.scale!r}, {value.zero_point}"
    lines = [f"model.add_operand(nn.OperandType({arguments}))  # {index}"]
    if value.channel_quant is not None:
        quant = f"nn.ChannelQuant({list(value.channel_quant.scales)}, {value.channel_quant.channel_dim})"
        lines.append(f"model.set_operand_symm_per_channel_quant_params({index}, {quant})")
    if is_source and (value.array is None or (value.constant and not dynamic)):
        lines.append(f"model.set_operand_value({index}, {_literal(value)})")
    return lines


def _literal(value: Value) -> str:
    if value.array is None:
        return "None"
    if value.array.size <= _LITERAL_ELEMENTS:
        return f"np.array({value.array.tolist()}, np.{_dtype_name(value)})"
    text = base64.b85encode(zlib.compress(value.array.tobytes(), 9)).decode("ascii")
    return f'data("{text}", np.{_dtype_name(value)}, {list(value.dimensions)})'


def _dtype_name(value: Value) -> str:
    if value.array is None:
        return "uint8"
    return "bool_" if value.array.dtype.kind == "b" else value.array.dtype.name


_SCRIPT = """\
# {title}
import base64
import sys
import zlib

import numpy as np

import nn_runtime as nn
from nn_runtime.testing import tolerances


def data(text, dtype, dims):
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype).reshape(dims)


model = nn.Model()
{model}
model.identify_inputs_and_outputs({inputs}, {outputs})
model.finish()
inputs = [
{arrays}
]


def run(name):
    outputs = [
{buffers}
    ]
    device = next(device for device in nn.devices() if device.name == name)
    with nn.Compilation(model, [device]) as compilation:
        compilation.finish()
        with nn.Execution(compilation) as execution:
            for i, array in enumerate(inputs):
                execution.set_input(i, array)
            for i, array in enumerate(outputs):
                execution.set_output(i, array)
            execution.compute()
    return outputs


problems = 0
for i, (code, wanted, got) in enumerate(zip([{types}], run("{wanted}"), run("{got}"))):
    problem = tolerances.disagreement(tolerances.{criterion}, code, wanted.reshape(-1), got.reshape(-1))
    print(f"output {{i}}:", problem or "agrees")
    problems += bool(problem)
sys.exit(bool(problems))
"""

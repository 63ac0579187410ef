# SPDX-License-Identifier: Apache-2.0
"""Parts of a transposed tensor that lie in its source in the same order: they are cut out of that.

As PyTorch's exporter leaves queries, keys and values, which one product makes together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.passes.transposes import is_transpose
from nn_runtime.codes import OperationCode
from nn_runtime.hal.types import Operation
from nn_runtime.operations.slice import slice_parameters
from nn_runtime.operations.transpose import permutation

if TYPE_CHECKING:
    from gpu_driver.passes.graph import Graph


def slice_sources(graph: Graph) -> None:
    """Let SLICEs read what a TRANSPOSE reads, if they alone read that. What looks for readers comes before."""
    for at in list(graph.operations):
        output = graph.operations[at].outputs[0]
        readers = graph.readers(output)
        if not (readers and is_transpose(graph, at) and graph.is_temporary(output)):
            continue
        if all(_fits(graph, at, one) for one in readers):
            for one in readers:
                _slice_source(graph, at, one)
            graph.replace(readers[0], graph.operations[readers[0]], (at,))


def _fits(graph: Graph, at: int, reader: int) -> bool:
    """Whether a reader is a SLICE of a TRANSPOSE with no dimensions but of 1 that change places."""
    if graph.operations[reader].type != OperationCode.SLICE or not graph.fits(reader):
        return False
    sizes = slice_parameters(graph.view(reader)).sizes
    order = [axis for axis, size in zip(permutation(graph.view(at)), sizes, strict=True) if size > 1]
    return order == sorted(order)


def _slice_source(graph: Graph, at: int, reader: int) -> None:
    order, parameters = permutation(graph.view(at)), slice_parameters(graph.view(reader))
    begins, sizes = ([numbers[order.index(axis)] for axis in range(len(order))]
                      for numbers in (parameters.begins, parameters.sizes))  # fmt: skip
    source, operation = graph.operations[at].inputs[0], graph.operations[reader]
    part = graph.add_temporary(source, tuple(sizes))
    shape = graph.add_numbers(graph.operand(operation.outputs[0]).dimensions)
    cut = replace(operation, inputs=(source, graph.add_numbers(begins), graph.add_numbers(sizes)), outputs=(part,))
    graph.split(reader, (cut, Operation(OperationCode.RESHAPE, (part, shape), operation.outputs)))

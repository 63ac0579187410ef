# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE operations that undo each other: in a row, around reshapes, or around operations that know no layout.

What comes from exporters of networks in the other layout: NHWC -> NCHW, an activation or an ADD, NCHW -> NHWC. Such
operations are done in the layout before, with their constants transposed. Nothing is ever added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.passes.identities import unchanged_input
from gpu_driver.passes.region import Region
from nn_runtime.codes import OperationCode
from nn_runtime.operations.transpose import permutation

if TYPE_CHECKING:
    from gpu_driver.passes.graph import Graph
    from nn_runtime.operand import Dimensions


def remove_round_trips(graph: Graph) -> bool:
    """Shorten what can be; whether there was anything. Removing identities and unread results after it is a must."""
    if not any(operation.type == OperationCode.TRANSPOSE for operation in graph.operations.values()):
        return False
    changed = False
    for at in list(graph.operations):
        if is_transpose(graph, at):
            changed |= _restore_source(graph, at) or _join_with_previous(graph, at) or Region(graph, at).rewrite()
    return changed


def is_transpose(graph: Graph, at: int | None) -> bool:
    """Whether an operation is a TRANSPOSE whose sizes and permutation are known."""
    return at is not None and graph.operations[at].type == OperationCode.TRANSPOSE and graph.fits(at)


def _join_with_previous(graph: Graph, at: int) -> bool:
    """Let a TRANSPOSE of a TRANSPOSE read that one's source."""
    operation = graph.operations[at]
    previous = graph.producer(operation.inputs[0])
    if previous is None or not is_transpose(graph, previous):
        return False
    first, second = permutation(graph.view(previous)), permutation(graph.view(at))
    source = graph.operations[previous].inputs[0]
    joined = graph.add_numbers([first[axis] for axis in second])
    graph.replace(at, replace(operation, inputs=(source, joined)))
    return True


def _restore_source(graph: Graph, at: int) -> bool:
    """Make a TRANSPOSE the RESHAPE that it is with the TRANSPOSEs and reshapes before it: of the farthest such source.

    A tensor is followed backwards by which part of its source each of its axes is.
    """
    operation = graph.operations[at]
    chain = _chain_before(graph, at)
    for start in range(len(chain) - 1):
        source = graph.operations[chain[start]].inputs[0]
        if not _gives_source_back(graph, chain[start:]):
            continue
        dims = graph.operand(operation.outputs[0]).dimensions
        graph.replace(at, replace(operation, type=OperationCode.RESHAPE, inputs=(source, graph.add_numbers(dims))))
        return True
    return False


def _chain_before(graph: Graph, at: int) -> list[int]:
    """Return the operations, ending with `at`, of which each only moves what the one before it made."""
    chain = [at]
    while True:
        previous = graph.producer(graph.operations[chain[0]].inputs[0])
        if previous is None or not _only_moves(graph, previous):
            return chain
        chain.insert(0, previous)


def _only_moves(graph: Graph, at: int) -> bool:
    if not graph.fits(at):
        return False
    return is_transpose(graph, at) or unchanged_input(graph.view(at)) == 0


def _gives_source_back(graph: Graph, chain: list[int]) -> bool:
    """Whether operations one after the other leave every element where it was in memory."""
    dims = graph.operand(graph.operations[chain[0]].inputs[0]).dimensions
    axes: list[tuple[int, int]] | None = _dense(dims)
    for at in chain:
        if axes is None:
            return False
        if is_transpose(graph, at):
            axes = [axes[axis] for axis in permutation(graph.view(at))]
        else:
            axes = _reshaped(axes, graph.operand(graph.operations[at].outputs[0]).dimensions)
    return axes is not None and len(_merged(axes)) <= 1


def _dense(dims: Dimensions) -> list[tuple[int, int]]:
    """Return (size, stride) of every axis of a dense tensor."""
    axes: list[tuple[int, int]] = []
    stride = 1
    for size in reversed(dims):
        axes.insert(0, (size, stride))
        stride *= size
    return axes


def _merged(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return axes without those of size 1, and with those put together that are contiguous."""
    kept: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if kept and kept[-1][1] == size * stride:
            kept[-1] = kept[-1][0] * size, stride
        else:
            kept.append((size, stride))
    return kept


def _reshaped(axes: list[tuple[int, int]], dims: Dimensions) -> list[tuple[int, int]] | None:
    """Return the axes of a tensor of the same elements in the same order, None where one would have two strides."""
    left = _merged(axes)
    found: list[tuple[int, int]] = []
    for size in reversed(dims):
        if size == 1:
            found.insert(0, (1, 0))
            continue
        whole, stride = left.pop()
        if whole % size:
            return None
        found.insert(0, (size, stride))
        if whole > size:
            left.append((whole // size, stride * size))
    return found

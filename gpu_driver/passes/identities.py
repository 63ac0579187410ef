# SPDX-License-Identifier: Apache-2.0
"""Operations whose output has the bytes of one input, and results that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.passes.graph import REDUCTIONS
from nn_runtime.codes import CONTROL_FLOW, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of, element_count
from nn_runtime.operations.channel_shuffle import channel_shuffle
from nn_runtime.operations.resize import resize_geometry
from nn_runtime.operations.slice import slice_parameters
from nn_runtime.operations.transpose import permutation
from nn_runtime.quantization import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_driver.passes.graph import Graph
    from nn_runtime.operand import OperandView
    from nn_runtime.operations import OperationView


def unchanged_input(op: OperationView) -> int | None:
    """Return the place of the input whose bytes an operation with known sizes and parameters gives, or None.

    RESIZE_BILINEAR to the same size counts: it only would make NaN of an infinity.
    """
    rule = _RULES.get(op.code)
    if rule is None or len(op.outputs) != 1:
        return None
    output = op.outputs[0]
    names = [argument.name for argument in op.arguments]
    places = [i for i, name in enumerate(names) if name == "input" and element_count(op.inputs[i].dimensions or ())]
    if len(places) != 1 or not _is_same_kind(op.inputs[places[0]], output):
        return None
    return places[0] if rule(op) else None


def remove_identities(graph: Graph) -> bool:
    """Let readers of what changes nothing read its source; whether there was any.

    A copy stays where both ends belong to the model's caller, or the source is a constant.
    """
    removed = False
    for at in list(graph.operations):
        removed |= at in graph.operations and (_remove_identity(graph, at) or _remove_requantisation(graph, at))
    return removed


def remove_unread(graph: Graph) -> bool:
    """Remove operations, control flow apart, whose results nobody needs; whether there was any."""
    removed = False
    for at in reversed(list(graph.operations)):
        operation = graph.operations[at]
        needed = any(graph.is_output(i) or graph.readers(i) for i in operation.outputs)
        if not needed and operation.type not in CONTROL_FLOW:
            graph.remove(at)
            removed = True
    return removed


def _remove_identity(graph: Graph, at: int) -> bool:
    operation = graph.operations[at]
    if operation.type not in _RULES or not graph.fits(at):
        return False
    place = unchanged_input(graph.view(at))
    if place is None:
        return False
    source, output = operation.inputs[place], operation.outputs[0]
    if graph.operand(source).dimensions != graph.operand(output).dimensions:
        return False  # an alias for lowering
    if not graph.is_output(output):
        graph.remove(at)
        graph.read_instead(output, source)
        return True
    maker = graph.producer(source)
    if maker is None or graph.is_output(source) or graph.operations[maker].type in CONTROL_FLOW:
        return False
    graph.remove(at)
    graph.write_instead(source, output)
    return True


def _remove_requantisation(graph: Graph, at: int) -> bool:
    """Remove a QUANTIZE that gives the values before a DEQUANTIZE again; that goes too if nobody else reads it."""
    operation = graph.operations[at]
    maker = graph.producer(operation.inputs[0]) if operation.type == OperationCode.QUANTIZE else None
    if maker is None or graph.operations[maker].type != OperationCode.DEQUANTIZE:
        return False
    if graph.is_output(operation.outputs[0]) or not (graph.fits(maker) and graph.fits(at)):
        return False
    source, real, output = graph.operations[maker].inputs[0], operation.inputs[0], operation.outputs[0]
    if not _is_same_kind(graph.view(maker).inputs[0], graph.view(at).outputs[0]):
        return False
    before, between, after = (graph.operand(i) for i in (source, real, output))
    if before.type not in QUANT8_TYPES:
        return False
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(before.type))
    reals = dequantize(codes, graph.view(maker).inputs[0]).astype(dtype_of(between.type))
    if not np.array_equal(quantize(reals, graph.view(at).outputs[0]), codes) or before.dimensions != after.dimensions:
        return False
    graph.remove(at)
    graph.read_instead(output, source)
    return True


def _is_same_kind(first: OperandView, second: OperandView) -> bool:
    return (first.type, first.scale, first.zero_point, first.channel_quant) == (
        second.type,
        second.scale,
        second.zero_point,
        second.channel_quant,
    ) and element_count(first.dimensions or ()) == element_count(second.dimensions or ())


def _always(op: OperationView) -> bool:
    """As many elements as before are all of them, in order."""
    return True


def _has_same_dimensions(op: OperationView) -> bool:
    return op.dimensions("input") == op.outputs[0].dimensions


def _keeps_order(op: OperationView) -> bool:
    dims = op.dimensions("input")
    moved = [axis for axis in permutation(op) if dims[axis] != 1]
    return moved == sorted(moved)


def _takes_all_forwards(op: OperationView) -> bool:
    taken = slice_parameters(op)
    return all(size == 1 or stride == 1 for size, stride in zip(taken.sizes, taken.strides, strict=True))


def _keeps_size(op: OperationView) -> bool:
    geometry = resize_geometry(op)
    if op.code == OperationCode.RESIZE_NEAREST_NEIGHBOR:
        return _counts_up(geometry.nearest_rows()) and _counts_up(geometry.nearest_columns())
    lines = geometry.linear_rows(), geometry.linear_columns()
    return all(_counts_up(line.lower) and not np.any(line.weight) for line in lines)


def _counts_up(positions: np.ndarray) -> bool:
    return np.array_equal(positions, np.arange(len(positions)))


def _keeps_channels(op: OperationView) -> bool:
    shuffle = channel_shuffle(op)
    return shuffle.groups in (1, op.dimensions("input")[shuffle.axis])


_RULES: Mapping[int, Callable[[OperationView], bool]] = {
    **dict.fromkeys(
        (
            OperationCode.CAST,
            OperationCode.CONCATENATION,
            OperationCode.EXPAND_DIMS,
            OperationCode.PACK,
            *REDUCTIONS,
            OperationCode.RESHAPE,
            OperationCode.SPLIT,
            OperationCode.SQUEEZE,
        ),
        _always,
    ),
    **dict.fromkeys(
        (
            OperationCode.BATCH_TO_SPACE_ND,
            OperationCode.DEPTH_TO_SPACE,
            OperationCode.MIRROR_PAD,
            OperationCode.PAD,
            OperationCode.PAD_V2,
            OperationCode.SPACE_TO_BATCH_ND,
            OperationCode.SPACE_TO_DEPTH,
            OperationCode.TILE,
        ),
        _has_same_dimensions,
    ),
    **dict.fromkeys((OperationCode.REVERSE, OperationCode.SLICE, OperationCode.STRIDED_SLICE), _takes_all_forwards),
    **dict.fromkeys((OperationCode.RESIZE_BILINEAR, OperationCode.RESIZE_NEAREST_NEIGHBOR), _keeps_size),
    OperationCode.CHANNEL_SHUFFLE: _keeps_channels,
    OperationCode.TRANSPOSE: _keeps_order,
}
"""Whether an operation with as many elements behind as before, of the same type and quantisation, changes nothing."""

# SPDX-License-Identifier: Apache-2.0
"""Removal of trailing arguments that hold their default values, so that older drivers understand an operation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from nn_runtime.errors import BadData
from nn_runtime.hal.types import CONSTANT_LIFETIMES, Model, Operation, Subgraph
from nn_runtime.hal.views import constant_array, operation_view
from nn_runtime.operations import definition

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAYOUT = {"layout": 0}
_CONVOLUTION = {"layout": 0, "dilation_width": 1, "dilation_height": 1}
_RESIZE = {"layout": 0, "align_corners": 0, "half_pixel_centers": 0}
_AXIS = {"axis": -1}

DEFAULTS: Mapping[int, Mapping[str, int]] = {
    OperationCode.AVERAGE_POOL_2D: _LAYOUT,
    OperationCode.MAX_POOL_2D: _LAYOUT,
    OperationCode.L2_POOL_2D: _LAYOUT,
    OperationCode.CONV_2D: _CONVOLUTION,
    OperationCode.DEPTHWISE_CONV_2D: _CONVOLUTION,
    OperationCode.DEPTH_TO_SPACE: _LAYOUT,
    OperationCode.SPACE_TO_DEPTH: _LAYOUT,
    OperationCode.BATCH_TO_SPACE_ND: _LAYOUT,
    OperationCode.SPACE_TO_BATCH_ND: _LAYOUT,
    OperationCode.L2_NORMALIZATION: _AXIS,
    OperationCode.LOCAL_RESPONSE_NORMALIZATION: _AXIS,
    OperationCode.SOFTMAX: _AXIS,
    OperationCode.RESIZE_BILINEAR: _RESIZE,
    OperationCode.RESIZE_NEAREST_NEIGHBOR: {"align_corners": 0, "half_pixel_centers": 0},
}
"""Arguments with a default, by operation."""


def without_default_arguments(model: Model) -> Model:
    """Return a model whose operations have no trailing default arguments; the same object where none has any.

    Operands stay as they are, so that their numbers keep their meaning.
    """
    main = _shortened(model, model.main)
    referenced = tuple(_shortened(model, graph) for graph in model.referenced)
    if main is model.main and all(a is b for a, b in zip(referenced, model.referenced, strict=True)):
        return model
    return replace(model, main=main, referenced=referenced)


def _shortened(model: Model, graph: Subgraph) -> Subgraph:
    operations = tuple(
        _without_tail(model, graph, operation) if operation.type in DEFAULTS else operation
        for operation in graph.operations
    )
    if all(a is b for a, b in zip(operations, graph.operations, strict=True)):
        return graph
    return replace(graph, operations=operations)


def _without_tail(model: Model, graph: Subgraph, operation: Operation) -> Operation:
    """Drop as many trailing default arguments as leave a legal list."""
    try:
        names = [argument.name for argument in operation_view(model, graph, operation).arguments]
    except BadData:
        return operation
    defaults = DEFAULTS[operation.type]
    shortest = operation
    for count in range(len(names) - 1, 0, -1):
        if not _is_default(model, graph, operation.inputs[count], defaults.get(names[count])):
            break
        candidate = replace(operation, inputs=operation.inputs[:count])
        if _means_the_same(model, graph, candidate, names[:count]):
            shortest = candidate
    return shortest


def _is_default(model: Model, graph: Subgraph, index: int, default: int | None) -> bool:
    operand = graph.operands[index]
    if default is None or operand.lifetime not in CONSTANT_LIFETIMES:
        return False
    value = constant_array(model, operand)
    return value is not None and value.size == 1 and int(value.reshape(-1)[0]) == default


def _means_the_same(model: Model, graph: Subgraph, candidate: Operation, names: list[str]) -> bool:
    """Tell whether the shorter list is legal, and its arguments are still read as what they were."""
    if all(variant.expand(len(names)) is None for variant in definition(candidate.type).variants):
        return False
    try:
        return [argument.name for argument in operation_view(model, graph, candidate).arguments] == names
    except BadData:
        return False

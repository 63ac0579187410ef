# SPDX-License-Identifier: Apache-2.0
"""Which version of the HAL a model or a request needs (SURFACE section m, "Version algebra").

Every check yields the least feature level that it needs, and levels combine by maximum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel
from nn_runtime.hal.memory import HardwareBuffer
from nn_runtime.hal.types import BufferToken, Operation, Subgraph
from nn_runtime.hal.validation import validate_model, validate_request
from nn_runtime.operand import has_unknown_dimensions, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import Model, Request

VERSIONS = (FeatureLevel.HAL_1_0, FeatureLevel.HAL_1_1, FeatureLevel.HAL_1_2, FeatureLevel.HAL_1_3)


def minimum_level(model: Model) -> FeatureLevel:
    """Return the least feature level that can express a valid model; raises HalError(INVALID_ARGUMENT).

    Operands that nothing names count for nothing, nor does the permission to relax float32: without it a driver is only
    stricter.
    """
    level = validate_model(model)
    if level > FeatureLevel.HAL_1_0:
        level = validate_model(without_dead_operands(model))
    return max(level, level_of_pools(model.pools))


def without_dead_operands(model: Model) -> Model:
    """Return a model without the constants of its main graph that no operation reads; the same where there are none."""
    graph = model.main
    used = {i for operation in graph.operations for i in (*operation.inputs, *operation.outputs)}
    used.update(graph.input_indexes, graph.output_indexes)
    if len(used) == len(graph.operands):
        return model
    order = sorted(used)
    number = {index: at for at, index in enumerate(order)}
    main = Subgraph(
        tuple(graph.operands[index] for index in order),
        tuple(
            Operation(
                operation.type, tuple(number[i] for i in operation.inputs), tuple(number[i] for i in operation.outputs)
            )
            for operation in graph.operations
        ),
        tuple(number[i] for i in graph.input_indexes),
        tuple(number[i] for i in graph.output_indexes),
    )
    return replace(model, main=main)


def compliant_with(model: Model, version: int) -> bool:
    """Tell whether a version of the HAL (a FeatureLevel) can express a valid model without loss."""
    return minimum_level(model) <= version


def request_level(model: Model, request: Request) -> FeatureLevel:
    """Return the least feature level that can express a valid request; raises HalError(INVALID_ARGUMENT).

    Outputs of unknown size and hardware buffers need HAL 1.2, buffer tokens HAL 1.3.
    """
    validate_request(model, request, takes_formats=True)
    levels = [level_of_pools(request.pools)]
    main = model.main
    for argument, index in zip(request.outputs, main.output_indexes, strict=True):
        operand = main.operands[index]
        dims = merge_dimensions(operand.dimensions, argument.dimensions)
        if not argument.has_no_value and has_unknown_dimensions(operand.type, dims):
            levels.append(FeatureLevel.HAL_1_2)
    return max(levels)


def level_of_pools(pools: Sequence[SharedMemory | BufferToken]) -> FeatureLevel:
    """Return the least feature level that knows the kinds of some pools."""
    levels = [FeatureLevel.HAL_1_0]
    for pool in pools:
        if isinstance(pool, BufferToken):
            levels.append(FeatureLevel.HAL_1_3)
        elif isinstance(pool, HardwareBuffer):
            levels.append(FeatureLevel.HAL_1_2)
    return max(levels)

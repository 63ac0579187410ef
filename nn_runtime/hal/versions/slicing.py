# SPDX-License-Identifier: Apache-2.0
"""Slices: the part of a model that an older version of the HAL can express (SURFACE section k)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime import operations
from nn_runtime.codes import FeatureLevel, OperandCode, is_extension_code
from nn_runtime.errors import BadData
from nn_runtime.hal.types import WRITTEN_LIFETIMES, Model, Operand, OperandLifeTime, Operation, Subgraph
from nn_runtime.hal.validation import level_of_type, validate_model
from nn_runtime.hal.versions.compliance import level_of_pools
from nn_runtime.hal.views import operation_view
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Slice:
    """A model of what a version understands, and the position in the whole model of each of its operations.

    `model` is None where nothing is left.
    """

    model: Model | None
    operations: tuple[int, ...]


def slice_of(model: Model, version: int) -> Slice:
    """Return the slice of a valid model for a version (a FeatureLevel); the model itself where it is all understood."""
    everything = tuple(range(len(model.main.operations)))
    if validate_model(model) <= version and level_of_pools(model.pools) <= version:
        return Slice(model, everything)
    if level_of_pools(model.pools) > version:
        return Slice(None, ())
    graph = model.main
    kept = [at for at in everything if operation_level(model, graph.operations[at]) <= version]
    return Slice(_sliced(model, kept), tuple(kept)) if kept else Slice(None, ())


def operation_level(model: Model, operation: Operation) -> FeatureLevel:
    """Return the least feature level that can express one operation of the main graph with its operands."""
    graph = model.main
    if is_extension_code(operation.type):
        return FeatureLevel.HAL_1_2
    levels = [level_of_type(graph.operands[index]) for index in (*operation.inputs, *operation.outputs)]
    if operation.type not in operations.definitions():
        return max(levels, default=FeatureLevel.HAL_1_0)  # the OEM operation
    try:
        levels.append(operations.validate(operation_view(model, graph, operation)))
    except BadData:
        return FeatureLevel.LEVEL_8
    return max(levels)


def _sliced(model: Model, kept: Sequence[int]) -> Model:
    """Return the model of some operations: what they read from others becomes an input, what others read an output."""
    graph = model.main
    members = set(kept)
    written = {index for at in kept for index in graph.operations[at].outputs}
    outside = {i for at, operation in enumerate(graph.operations) if at not in members for i in operation.inputs}
    used = sorted({i for at in kept for i in (*graph.operations[at].inputs, *graph.operations[at].outputs)})
    numbers = {index: number for number, index in enumerate(used)}

    def lifetime(index: int) -> OperandLifeTime:
        before = graph.operands[index].lifetime
        if before in WRITTEN_LIFETIMES and index not in written:
            return OperandLifeTime.SUBGRAPH_INPUT
        if before == OperandLifeTime.TEMPORARY_VARIABLE and index in outside:
            return OperandLifeTime.SUBGRAPH_OUTPUT
        return before

    lifetimes = {index: lifetime(index) for index in used}
    operands = tuple(_with_lifetime(graph.operands[index], lifetimes[index]) for index in used)
    inputs = [i for i in graph.input_indexes if i in numbers]
    inputs += [i for i in used if lifetimes[i] == OperandLifeTime.SUBGRAPH_INPUT and i not in inputs]
    outputs = [i for i in graph.output_indexes if lifetimes.get(i) == OperandLifeTime.SUBGRAPH_OUTPUT]
    outputs += [i for i in used if lifetimes[i] == OperandLifeTime.SUBGRAPH_OUTPUT and i not in outputs]
    main = Subgraph(
        operands,
        tuple(
            Operation(
                graph.operations[at].type,
                tuple(numbers[i] for i in graph.operations[at].inputs),
                tuple(numbers[i] for i in graph.operations[at].outputs),
            )
            for at in kept
        ),
        tuple(numbers[i] for i in inputs),
        tuple(numbers[i] for i in outputs),
    )
    return with_main(model, main)


def with_main(model: Model, main: Subgraph) -> Model:
    """Return a model with another main graph, and of the rest what that refers to."""
    refers = any(operand.type == OperandCode.MODEL for operand in main.operands)
    referenced = model.referenced if refers else ()
    graphs = (main, *referenced)
    codes = {operand.type for graph in graphs for operand in graph.operands}
    codes |= {operation.type for graph in graphs for operation in graph.operations}
    prefixes = model.extension_name_to_prefix if any(map(is_extension_code, codes)) else {}
    return replace(model, main=main, referenced=referenced, extension_name_to_prefix=prefixes)


def _with_lifetime(operand: Operand, lifetime: OperandLifeTime) -> Operand:
    return operand if operand.lifetime == lifetime else replace(operand, lifetime=lifetime)

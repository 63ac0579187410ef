# SPDX-License-Identifier: Apache-2.0
"""An example as a model: in HAL form, and built by the NDK-level calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import NNError
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import DataLocation, OperandLifeTime
from nn_runtime.hal.types import Model as HalModel
from nn_runtime.hal.types import Operand as HalOperand
from nn_runtime.hal.types import Operation as HalOperation
from nn_runtime.hal.types import Subgraph as HalSubgraph
from nn_runtime.operand import OperandType
from nn_runtime.testing.conformance.report import FinishRefused, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.model import Model
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.testing.corpus import Example, ExampleGraph, ExampleOperand

_ALIGNMENT = 64


def hal_model(example: Example) -> HalModel:
    """Return an example's model in HAL form: constants inline or in a pool, as its lifetimes say."""
    inline = bytearray()
    pooled = bytearray()
    graphs = [
        HalSubgraph(
            tuple(_hal_operand(operand, inline, pooled) for operand in graph.operands),
            tuple(HalOperation(op.type, op.inputs, op.outputs) for op in graph.operations),
            graph.inputs,
            graph.outputs,
        )
        for graph in example.graphs
    ]
    pools = (shared_copy(np.frombuffer(bytes(pooled), np.uint8)),) if pooled else ()
    return HalModel(graphs[0], tuple(graphs[1:]), bytes(inline), pools, example.relaxed)


def _hal_operand(operand: ExampleOperand, inline: bytearray, pooled: bytearray) -> HalOperand:
    location = DataLocation()
    if isinstance(operand.value, int):
        location = DataLocation(offset=operand.value)
    elif operand.value is not None:
        location = _appended(inline if operand.lifetime == OperandLifeTime.CONSTANT_COPY else pooled, operand.value)
    return HalOperand(
        operand.type,
        operand.dimensions,
        operand.scale,
        operand.zero_point,
        operand.lifetime,
        location,
        operand.channel_quant,
    )


def _appended(values: bytearray, data: Array) -> DataLocation:
    values += bytes(-len(values) % _ALIGNMENT)
    location = DataLocation(offset=len(values), length=data.nbytes)
    values += data.tobytes()
    return location


def ndk_model(example: Example) -> Model:
    """Return an example's finished NDK model; raises NNError where it is refused."""
    finished: dict[int, Model] = {}

    def referenced(index: int) -> Model:
        if index not in finished:
            finished[index] = _ndk_graph(example.referenced[index], example.relaxed, referenced)
        return finished[index]

    return _ndk_graph(example.main, example.relaxed, referenced)


def _ndk_graph(graph: ExampleGraph, relaxed: bool, referenced: Callable[[int], Model]) -> Model:
    from nn_runtime.model import Model

    model = Model()
    for operand in graph.operands:
        quant = operand.channel_quant
        index = model.add_operand(OperandType(operand.type, operand.dimensions, operand.scale, operand.zero_point))
        if quant is not None:
            model.set_operand_symm_per_channel_quant_params(index, quant)
        _set_value(model, index, operand, referenced)
    for operation in graph.operations:
        model.add_operation(operation.type, operation.inputs, operation.outputs)
    model.identify_inputs_and_outputs(graph.inputs, graph.outputs)
    model.relax_computation_float32_to_float16(relaxed)
    try:
        model.finish()
    except NNError as error:
        # What was added without an error makes a valid model, even where a failure is expected.
        raise FinishRefused(f"Model.finish: {error}") from error
    return model


def _set_value(model: Model, index: int, operand: ExampleOperand, referenced: Callable[[int], Model]) -> None:
    from nn_runtime.memory import Memory

    if isinstance(operand.value, int):
        model.set_operand_value_from_model(index, referenced(operand.value))
    elif operand.value is not None and operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE:
        memory = Memory.from_array(operand.value)
        model.set_operand_value_from_memory(index, memory, 0, operand.value.nbytes)
    elif operand.value is not None:
        model.set_operand_value(index, operand.value)
    elif operand.lifetime == OperandLifeTime.NO_VALUE:
        model.set_operand_value(index, None)


def shared_copy(data: Array) -> SharedMemory:
    """Return new shared memory that holds the bytes of an array."""
    memory = SharedMemory.create(data.nbytes)
    memory.array()[:] = data.reshape(-1).view(np.uint8)
    return memory


def declared(example: Example) -> list[Dimensions]:
    """Return the dimensions of the outputs as the model says them."""
    return [example.main.operands[i].dimensions for i in example.main.outputs]


def output_types(example: Example) -> list[int]:
    """Return the operand types of the outputs."""
    return [example.main.operands[i].type for i in example.main.outputs]


def outcome(dimensions: Dimensions, buffer: Array) -> Outcome:
    """Cut a buffer to the elements that the dimensions mean."""
    return Outcome(dimensions, buffer[: int(np.prod(dimensions, dtype=np.int64))])

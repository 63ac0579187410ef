# SPDX-License-Identifier: Apache-2.0
"""Views of HAL models and requests that validation and drivers share: operands with values, operations, byte ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.hal.types import BufferToken, ErrorStatus, HalError, OperandLifeTime
from nn_runtime.operand import dtype_of, is_tensor
from nn_runtime.operations import OperationView
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import DataLocation, Model, Operand, Operation, Subgraph
    from nn_runtime.operand import Array, ChannelQuant, Dimensions


def constant_bytes(model: Model, operand: Operand) -> Array | None:
    """Return the bytes of a constant operand as uint8 [length] without copying, or None if it is no constant."""
    location = operand.location
    if operand.lifetime == OperandLifeTime.POINTER and location.pointer is not None:
        return location.pointer.reshape(-1).view(np.uint8)
    if operand.lifetime == OperandLifeTime.CONSTANT_COPY:
        return np.frombuffer(model.operand_values, np.uint8, location.length, location.offset)
    if operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE:
        pool = model.pools[location.pool_index].array()
        return pool[location.offset : location.offset + location.length]
    return None


def constant_array(model: Model, operand: Operand) -> Array | None:
    """Return a constant operand's data shaped by its dimensions (not copied where aligned), or None.

    An OEM_SCALAR, of a length that its vendor alone knows, is a row of bytes.
    """
    data = constant_bytes(model, operand)
    if data is None or operand.type == OperandCode.OEM_SCALAR:
        return data
    return typed_array(data, operand.type, operand.dimensions)


def typed_array(data: Array, code: int, dims: Dimensions) -> Array:
    """Return bytes as an array of the operand type's dtype, shaped `dims`; copied only where misaligned."""
    dtype = dtype_of(code)
    if data.ctypes.data % dtype.alignment:
        data = data.copy()
    return data.view(dtype).reshape(dims)


@dataclass(frozen=True)
class ModelOperand:
    """OperandView of an operand in a HAL model: constants have values, other data is not known."""

    model: Model
    operand: Operand

    @property
    def type(self) -> int:
        """Operand type code."""
        return self.operand.type

    @property
    def dimensions(self) -> Dimensions | None:
        """Sizes; None where a tensor's rank is unknown."""
        return None if is_tensor(self.operand.type) and not self.operand.dimensions else self.operand.dimensions

    @property
    def scale(self) -> float:
        """Quantisation scale."""
        return self.operand.scale

    @property
    def zero_point(self) -> int:
        """Quantisation zero point."""
        return self.operand.zero_point

    @property
    def channel_quant(self) -> ChannelQuant | None:
        """Per-channel scales."""
        return self.operand.channel_quant

    @property
    def omitted(self) -> bool:
        """Whether the model gives no value."""
        return self.operand.lifetime == OperandLifeTime.NO_VALUE

    def value(self) -> Array | None:
        """Return the constant, or None."""
        return constant_array(self.model, self.operand)

    def subgraph(self) -> ModelSubgraph | None:
        """Return the referenced model of a MODEL operand."""
        if self.operand.type != OperandCode.MODEL:
            return None
        return ModelSubgraph(self.model, self.model.referenced[self.operand.location.offset])


@dataclass(frozen=True)
class ModelSubgraph:
    """SubgraphView of a subgraph in a HAL model."""

    model: Model
    graph: Subgraph

    @property
    def inputs(self) -> Sequence[ModelOperand]:
        """Inputs in order."""
        return [ModelOperand(self.model, self.graph.operands[i]) for i in self.graph.input_indexes]

    @property
    def outputs(self) -> Sequence[ModelOperand]:
        """Outputs in order."""
        return [ModelOperand(self.model, self.graph.operands[i]) for i in self.graph.output_indexes]


def operation_view(model: Model, graph: Subgraph, operation: Operation, index: int | None = None) -> OperationView:
    """Return one operation of a subgraph with model-time views of its operands."""
    return OperationView(
        operation.type,
        [ModelOperand(model, graph.operands[i]) for i in operation.inputs],
        [ModelOperand(model, graph.operands[i]) for i in operation.outputs],
        index,
    )


def argument_bytes(location: DataLocation, pools: Sequence[SharedMemory | BufferToken]) -> Array:
    """Return the bytes of a request argument in host memory: a pointer's or a pool's; not for buffer tokens."""
    if location.pointer is not None:
        return location.pointer.reshape(-1).view(np.uint8)
    pool = pools[location.pool_index]
    if isinstance(pool, BufferToken):
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"pool {location.pool_index} is a buffer token, not host memory")
    data: Array = pool.array()
    return data[location.offset : location.offset + location.length]

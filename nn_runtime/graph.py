# SPDX-License-Identifier: Apache-2.0
"""Operands and operations of a model: what is checked of the whole, and the form that drivers get."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from nn_runtime import extensions
from nn_runtime.codes import operand_type_name, operation_name
from nn_runtime.errors import BadData
from nn_runtime.hal import types as hal
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import INLINE_CONSTANT_BYTES, WRITTEN_LIFETIMES, OperandLifeTime
from nn_runtime.operand import dtype_of, is_tensor
from nn_runtime.order import ReadyOperations

if TYPE_CHECKING:
    from nn_runtime.operand import Array, ChannelQuant, Dimensions, OperandType

_POOL_ALIGNMENT = 64


class ModelOperand:
    """An operand of a model under construction; an OperandView."""

    def __init__(self, operand_type: OperandType) -> None:
        """Start as a temporary without a value."""
        self.operand_type = operand_type
        self.lifetime = OperandLifeTime.TEMPORARY_VARIABLE
        self.data: Array | None = None
        """Bytes of a constant given by value (uint8), or in a memory."""
        self.shared: SharedMemory | None = None
        """Where a constant given by memory, or a large one, lies."""
        self.location = hal.DataLocation()
        self.graph: Graph | None = None
        """The graph of a referenced model."""
        self.extension_data: bytes | None = None

    @property
    def type(self) -> int:
        """Operand type code."""
        return self.operand_type.type

    @property
    def dimensions(self) -> Dimensions | None:
        """Sizes, or None for an unknown rank."""
        dims = self.operand_type.dims
        return None if is_tensor(self.type) and not dims else dims

    @property
    def scale(self) -> float:
        """Quantisation scale."""
        return self.operand_type.scale

    @property
    def zero_point(self) -> int:
        """Quantisation zero point."""
        return self.operand_type.zero_point

    @property
    def channel_quant(self) -> ChannelQuant | None:
        """Per-channel scales, if the type has them."""
        return self.operand_type.channel_quant

    @property
    def omitted(self) -> bool:
        """Whether an optional operand has no value."""
        return self.lifetime == OperandLifeTime.NO_VALUE

    def value(self) -> Array | None:
        """Return a constant's data, shaped by the dimensions, else None."""
        if self.data is None:
            return None
        dtype = dtype_of(self.type)
        data = self.data.copy() if self.data.ctypes.data % dtype.alignment else self.data
        return data.view(dtype).reshape(self.operand_type.dims)

    def subgraph(self) -> Graph | None:
        """Return the graph of a referenced model."""
        return self.graph

    def to_hal(self, location: hal.DataLocation) -> hal.Operand:
        """Return the operand as drivers get it, its data at `location`."""
        kind = self.operand_type
        return hal.Operand(
            kind.type,
            kind.dims,
            kind.scale,
            kind.zero_point,
            self.lifetime,
            location,
            kind.channel_quant,
            self.extension_data,
        )


class Graph:
    """The operands and operations of a model in order of adding; a SubgraphView of a referenced one."""

    def __init__(self) -> None:
        self.operands: list[ModelOperand] = []
        self.operations: list[hal.Operation] = []
        self.input_indexes: tuple[int, ...] = ()
        self.output_indexes: tuple[int, ...] = ()
        self.run_order: tuple[int, ...] = ()

    @property
    def inputs(self) -> list[ModelOperand]:
        """Inputs in order."""
        return [self.operands[i] for i in self.input_indexes]

    @property
    def outputs(self) -> list[ModelOperand]:
        """Outputs in order."""
        return [self.operands[i] for i in self.output_indexes]

    def label(self, index: int) -> str:
        """Return `operand 7 (TENSOR_FLOAT32 [2, 3])`."""
        kind = self.operands[index].operand_type
        dims = f" {list(kind.dims)}" if kind.dims else ""
        return f"operand {index} ({operand_type_name(kind.type)}{dims})"

    def check_written(self) -> None:
        """Check that every temporary and output is written once, and nothing else is; raises BadData."""
        writers: dict[int, int] = {}
        for at, operation in enumerate(self.operations):
            name = f"operation {at} {operation_name(operation.type)}"
            for index in operation.outputs:
                if self.operands[index].lifetime not in WRITTEN_LIFETIMES:
                    raise BadData(f"{name}: it writes {self.label(index)}, an input, constant or omitted operand")
                if index in writers:
                    raise BadData(f"{name}: it writes {self.label(index)}, which operation {writers[index]} writes")
                writers[index] = at
        readers = {index: at for at, operation in enumerate(self.operations) for index in operation.inputs}
        for index, operand in enumerate(self.operands):
            if operand.lifetime in WRITTEN_LIFETIMES and index not in writers:
                raise BadData(
                    f"{self.label(index)} is read by operation {readers[index]} but nothing writes it"
                    if index in readers
                    else f"{self.label(index)} is never written"
                )

    def sort(self) -> None:
        """Put the operations into an order in which each reads only what is written, the given order where it can.

        Raises BadData for a cycle.
        """
        written = {i for i, operand in enumerate(self.operands) if operand.lifetime in WRITTEN_LIFETIMES}
        operations = ReadyOperations(self.operations, written)
        ready = operations.first()
        order: list[int] = []
        while ready:
            at = heapq.heappop(ready)
            order.append(at)
            for reader in operations.after(at):
                heapq.heappush(ready, reader)
        if len(order) < len(self.operations):
            stuck = [f"{at} {operation_name(self.operations[at].type)}" for at in operations.waiting()]
            raise BadData(f"model: a cycle; these operations wait for each other's results: {', '.join(stuck)}")
        self.run_order = tuple(order)

    def pool_large_constants(self) -> None:
        """Move the constants that are too large to be copied into a pool of their own."""
        large = [
            (operand, operand.data)
            for operand in self.operands
            if operand.lifetime == OperandLifeTime.CONSTANT_COPY
            and operand.data is not None
            and operand.data.nbytes > INLINE_CONSTANT_BYTES
        ]
        if not large:
            return
        lengths = [-(-data.nbytes // _POOL_ALIGNMENT) * _POOL_ALIGNMENT for _, data in large]
        pool = SharedMemory.create(sum(lengths))
        mapped = pool.array()
        for (operand, data), offset in zip(large, itertools.accumulate(lengths, initial=0), strict=False):
            end = offset + data.nbytes
            mapped[offset:end] = data
            operand.data, operand.shared = mapped[offset:end], pool
            operand.location = hal.DataLocation(offset=offset, length=data.nbytes)
            operand.lifetime = OperandLifeTime.CONSTANT_REFERENCE

    def to_hal(self, relaxed: bool) -> hal.Model:
        """Return the sorted graph and those it refers to as drivers get them."""
        return _Builder(self).build(relaxed)


class _Builder:
    """Builds the HAL model: numbers referenced models and pools, lays out the small constants."""

    def __init__(self, main: Graph) -> None:
        self.main = main
        self.referenced: list[Graph] = []
        self.pools: list[SharedMemory] = []
        self.values = bytearray()

    def build(self, relaxed: bool) -> hal.Model:
        graph = self._graph(self.main)
        done: list[hal.Subgraph] = []
        while len(done) < len(self.referenced):
            done.append(self._graph(self.referenced[len(done)]))
        graphs = (graph, *done)
        codes = {operand.type for part in graphs for operand in part.operands}
        codes |= {operation.type for part in graphs for operation in part.operations}
        return hal.Model(
            graph,
            tuple(done),
            bytes(self.values),
            tuple(self.pools),
            relaxed,
            extensions.name_to_prefix(codes),
        )

    def _graph(self, graph: Graph) -> hal.Subgraph:
        operands = tuple(self._operand(operand) for operand in graph.operands)
        operations = tuple(graph.operations[at] for at in graph.run_order)
        return hal.Subgraph(operands, operations, graph.input_indexes, graph.output_indexes)

    def _operand(self, operand: ModelOperand) -> hal.Operand:
        location = operand.location
        if operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE and operand.shared is not None:
            location = hal.DataLocation(self._pool_index(operand.shared), location.offset, location.length)
        elif operand.lifetime == OperandLifeTime.CONSTANT_COPY and operand.data is not None:
            location = self._inline(operand.data)
        elif operand.lifetime == OperandLifeTime.SUBGRAPH and operand.graph is not None:
            location = hal.DataLocation(offset=self._graph_index(operand.graph))
        return operand.to_hal(location)

    def _inline(self, data: Array) -> hal.DataLocation:
        length = data.nbytes
        alignment = 4 if length >= 4 else 2 if length >= 2 else 1
        self.values += bytes(-len(self.values) % alignment)
        offset = len(self.values)
        self.values += data.tobytes()
        return hal.DataLocation(offset=offset, length=length)

    def _pool_index(self, shared: SharedMemory) -> int:
        for at, pool in enumerate(self.pools):
            if pool is shared:
                return at
        self.pools.append(shared)
        return len(self.pools) - 1

    def _graph_index(self, graph: Graph) -> int:
        for at, other in enumerate(self.referenced):
            if other is graph:
                return at
        self.referenced.append(graph)
        return len(self.referenced) - 1

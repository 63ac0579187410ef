# SPDX-License-Identifier: Apache-2.0
"""Operations between TRANSPOSEs that can be done in the layout before them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.passes.graph import REDUCTIONS
from nn_runtime.codes import OperationCode
from nn_runtime.operand import element_count, is_tensor
from nn_runtime.operations.concatenation import concatenation_axis
from nn_runtime.operations.reduce import reduction
from nn_runtime.operations.transpose import permutation

if TYPE_CHECKING:
    from gpu_driver.passes.graph import Graph
    from nn_runtime.hal.types import Operation
    from nn_runtime.operand import Dimensions

_ELEMENTWISE = frozenset(
    {
        OperationCode.ABS,
        OperationCode.ADD,
        OperationCode.CAST,
        OperationCode.DEQUANTIZE,
        OperationCode.DIV,
        OperationCode.ELU,
        OperationCode.EQUAL,
        OperationCode.EXP,
        OperationCode.FLOOR,
        OperationCode.GREATER,
        OperationCode.GREATER_EQUAL,
        OperationCode.HARD_SWISH,
        OperationCode.LESS,
        OperationCode.LESS_EQUAL,
        OperationCode.LOG,
        OperationCode.LOGICAL_AND,
        OperationCode.LOGICAL_NOT,
        OperationCode.LOGICAL_OR,
        OperationCode.LOGISTIC,
        OperationCode.MAXIMUM,
        OperationCode.MINIMUM,
        OperationCode.MUL,
        OperationCode.NEG,
        OperationCode.NOT_EQUAL,
        OperationCode.POW,
        OperationCode.PRELU,
        OperationCode.QUANTIZE,
        OperationCode.RELU,
        OperationCode.RELU1,
        OperationCode.RELU6,
        OperationCode.RSQRT,
        OperationCode.SELECT,
        OperationCode.SIN,
        OperationCode.SQRT,
        OperationCode.SUB,
        OperationCode.TANH,
    }
)
_PADS = frozenset({OperationCode.PAD, OperationCode.PAD_V2, OperationCode.MIRROR_PAD})


class Region:
    """What has to change with one TRANSPOSE: every operation that shares a tensor of its layout.

    It ends in other TRANSPOSEs, which are joined with this one, and in reductions that keep the order of what they
    leave. Where it would end in anything else nothing is changed.
    """

    def __init__(self, graph: Graph, at: int) -> None:
        """Find what belongs to the TRANSPOSE `at`."""
        self._graph = graph
        self._perm = permutation(graph.view(at))
        self._entries: dict[int, int] = {}
        """Sources by the operand that a TRANSPOSE made of it."""
        self._inside: set[int] = set()
        self._ends: set[int] = set()
        self._new: dict[int, int] = {}
        """What stands for an operand of the region from now on."""
        self._pending: list[int] = []
        """Operations that have yet to be taken in."""
        self._is_closed = self._closes(at) and bool(self._inside or self._ends) and not self._moves_its_sources()

    def rewrite(self) -> bool:
        """Change the operations, so that nobody reads what the TRANSPOSEs made; whether it was done."""
        if not self._is_closed:
            return False
        self._new.update(self._entries)
        graph = self._graph
        for at in sorted(self._inside):
            (output,) = graph.operations[at].outputs
            self._new[output] = graph.add_temporary(output, self._before(graph.operand(output).dimensions))
        for at in sorted(self._inside | self._ends):
            graph.replace(at, self._rewritten(at))
        return True

    def _closes(self, at: int) -> bool:
        """Take in a TRANSPOSE and all that belongs to it; False where something cannot be rewritten."""
        is_closed = self._enter(at)
        while is_closed and self._pending:
            is_closed = self._take(self._pending.pop())
        return is_closed

    def _enter(self, at: int) -> bool:
        """Take in a TRANSPOSE, and later all that reads it."""
        graph = self._graph
        (output,) = graph.operations[at].outputs
        if output in self._entries:
            return True
        self._entries[output] = graph.operations[at].inputs[0]
        self._pending += graph.readers(output)
        return not graph.is_output(output)

    def _moves_its_sources(self) -> bool:
        """Whether a TRANSPOSE that leads into the region is of a tensor in it."""
        return any(self._graph.producer(source) in self._inside for source in self._entries.values())

    def _take(self, at: int) -> bool:
        """Take in an operation that reads or makes a tensor of the region, and later its neighbours."""
        graph = self._graph
        if at in self._inside or at in self._ends:
            return True
        if not graph.fits(at):
            return False
        operation = graph.operations[at]
        if operation.type == OperationCode.TRANSPOSE or self._is_last_reduction(at):
            self._ends.add(at)
            return True
        if not self._can_be_inside(at):
            return False
        self._inside.add(at)
        (output,) = operation.outputs
        readers = graph.readers(output)
        if graph.is_output(output) or not readers:
            return False
        self._pending += readers
        return all(self._take_source(i, len(graph.operand(output).dimensions)) for i in self._data(at))

    def _take_source(self, operand: int, rank: int) -> bool:
        """Take in what an operation of the region reads."""
        graph = self._graph
        found = graph.operand(operand)
        if element_count(found.dimensions) == 1 or graph.is_constant(operand):
            return True
        maker = graph.producer(operand)
        if maker is None or len(found.dimensions) != rank or not graph.fits(maker):
            return False
        if graph.operations[maker].type == OperationCode.TRANSPOSE:
            return permutation(graph.view(maker)) == self._perm and self._enter(maker)
        self._pending.append(maker)
        return self._can_be_inside(maker)

    def _can_be_inside(self, at: int) -> bool:
        graph = self._graph
        operation = graph.operations[at]
        if len(operation.outputs) != 1 or len(graph.operand(operation.outputs[0]).dimensions) != len(self._perm):
            return False
        if any(graph.operand(i).channel_quant is not None for i in operation.inputs):
            return False
        if operation.type in REDUCTIONS:
            return bool(graph.view(at).int_value("keep_dims"))
        return (
            operation.type in _ELEMENTWISE or operation.type in _PADS or operation.type == OperationCode.CONCATENATION
        )

    def _is_last_reduction(self, at: int) -> bool:
        """Whether a reduction drops its axes, and leaves the others in the order that they have before."""
        if self._graph.operations[at].type not in REDUCTIONS:
            return False
        op = self._graph.view(at)
        axes = reduction(op).axes
        kept = [before for axis, before in enumerate(self._perm) if axis not in axes]
        return not op.int_value("keep_dims") and kept == sorted(kept)

    def _data(self, at: int) -> list[int]:
        """Return the operands that have the layout."""
        op = self._graph.view(at)
        arguments = zip(op.arguments, self._graph.operations[at].inputs, op.inputs, strict=True)
        return [i for argument, i, operand in arguments if is_tensor(operand.type) and not argument.parameter]

    def _rewritten(self, at: int) -> Operation:
        graph, operation = self._graph, self._graph.operations[at]
        op = graph.view(at)
        rank = len(self._perm)
        parameters: dict[int, int] = {}
        if operation.type == OperationCode.TRANSPOSE:
            joined = graph.add_numbers([self._perm[axis] for axis in permutation(op)])
            return replace(operation, inputs=(self._new[operation.inputs[0]], joined))
        if operation.type in REDUCTIONS:
            axes = [self._perm[axis] for axis in reduction(op).axes]
            parameters[op.position("axes")] = graph.add_numbers(axes)
        elif operation.type in _PADS:
            amounts = np.array(op.int_values("paddings"), np.int32).reshape(rank, 2)
            place = op.position("paddings")
            parameters[place] = graph.add_constant(amounts[list(self._back)], operation.inputs[place])
        elif operation.type == OperationCode.CONCATENATION:
            axis = np.array(self._perm[concatenation_axis(op)], np.int32)
            parameters[len(operation.inputs) - 1] = graph.add_constant(axis, operation.inputs[-1])
        data = set(self._data(at))
        inputs = tuple(
            parameters.get(place, self._instead(i) if i in data else i) for place, i in enumerate(operation.inputs)
        )
        return replace(operation, inputs=inputs, outputs=tuple(self._new.get(i, i) for i in operation.outputs))

    def _instead(self, operand: int) -> int:
        """Return what an operation reads instead of an operand: a constant transposed."""
        graph = self._graph
        if operand not in self._new and graph.is_constant(operand):
            data = graph.constant(operand)
            if data is not None and data.size > 1:
                full = data.reshape((1,) * (len(self._perm) - data.ndim) + data.shape)
                self._new[operand] = graph.add_constant(full.transpose(self._back), operand)
        return self._new.get(operand, operand)

    @property
    def _back(self) -> tuple[int, ...]:
        """The permutation that undoes this one."""
        return tuple(int(axis) for axis in np.argsort(self._perm))

    def _before(self, dims: Dimensions) -> Dimensions:
        """Return the dimensions that a tensor of the region has in the layout before."""
        return tuple(dims[axis] for axis in self._back)

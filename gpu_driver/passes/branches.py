# SPDX-License-Identifier: Apache-2.0
"""IF whose branches are small: both are computed, and SELECT takes the results of one.

To decide means to wait for the device, and takes longer than a small branch for nothing; no segment goes on beyond it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.device.one_thread_time import one_thread_ns
from gpu_driver.passes.graph import Rewritten, constant_operand
from nn_runtime.codes import CONTROL_FLOW, OperandCode, OperationCode
from nn_runtime.hal.references import innermost_first
from nn_runtime.hal.types import Operand, OperandLifeTime, Operation, Subgraph
from nn_runtime.hal.views import operation_view
from nn_runtime.operand import dtype_of, has_unknown_dimensions, is_tensor
from nn_runtime.operations import definition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Dimensions

GREATEST_NS = 80_000
"""What one thread of a CPU may take for a branch that is computed for nothing: less than to decide and go on takes."""
_OPERATION_NS = 500
"""What an operation takes at least, of which `one_thread_ns` says nothing."""
_NOT_FOR_NOTHING = frozenset({
    *(OperationCode.GATHER, OperationCode.EMBEDDING_LOOKUP, OperationCode.ROI_ALIGN, OperationCode.ROI_POOLING),
    *(OperationCode.HEATMAP_MAX_KEYPOINT, OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM, OperationCode.RANDOM_MULTINOMIAL),
    *(OperationCode.GENERATE_PROPOSALS, OperationCode.BOX_WITH_NMS_LIMIT, OperationCode.DETECTION_POSTPROCESSING),
})  # fmt: skip
"""What may complain of values that only the other branch is for, or draws random numbers."""


def without_branches(model: Model) -> tuple[Rewritten, dict[int, Rewritten]]:
    """Return a model's main subgraph with the IFs that need not be decided gone, and so those that it refers to yet.

    These by number; those that nothing refers to any more are left out.
    """
    done: dict[int, Rewritten] = {}
    small: dict[int, Subgraph] = {}
    for number in innermost_first(model.main, model.referenced):
        done[number] = _joined(model.referenced[number], small)
        if _is_small(model, done[number].subgraph):
            small[number] = done[number].subgraph
    main = _joined(model.main, small)
    referenced = [done[at].subgraph if at in done else graph for at, graph in enumerate(model.referenced)]
    return main, {number: done[number] for number in sorted(innermost_first(main.subgraph, referenced))}


def _joined(subgraph: Subgraph, small: Mapping[int, Subgraph]) -> Rewritten:
    joining = _Joining(subgraph, small)
    for at, operation in enumerate(subgraph.operations):
        joining.take(at, operation)
    return joining.rewritten()


class _Joining:
    """A subgraph whose IFs become part of it, one operation after the other."""

    def __init__(self, subgraph: Subgraph, small: Mapping[int, Subgraph]) -> None:
        """`small`: by number the models that may be computed for nothing, among those that the subgraph refers to."""
        self._small = small
        self._before = subgraph
        self._operands = list(subgraph.operands)
        self._operations: list[Operation] = []
        self._origins: list[tuple[int, ...]] = []

    def rewritten(self) -> Rewritten:
        operations = tuple(self._operations)
        return Rewritten(
            replace(self._before, operands=tuple(self._operands), operations=operations), tuple(self._origins)
        )

    def take(self, at: int, operation: Operation) -> None:
        """Take an operation of the subgraph as it is, or what an IF becomes."""
        branches = self._branches(operation) if operation.type == OperationCode.IF else None
        if branches is None:
            self._operations.append(operation)
        else:
            self._join(operation, branches)
        self._origins += [(at,)] * (len(self._operations) - len(self._origins))

    def _branches(self, operation: Operation) -> list[Subgraph] | None:
        """Return both branches of an IF, None where one of them shall run alone."""
        _, then_model, else_model, *arguments = operation.inputs
        given = [self._operands[i] for i in arguments]
        results = [self._operands[i] for i in operation.outputs]
        if not all(_is_known(one) for one in (*given, *results)) or not all(_is_chosen(one) for one in results):
            return None
        numbers = [self._operands[i].location.offset for i in (then_model, else_model)]
        branches = [self._small[number] for number in numbers if number in self._small]
        boundary = [one.dimensions for one in (*given, *results)]
        return branches if len(branches) == 2 and all(_boundary(one) == boundary for one in branches) else None

    def _join(self, operation: Operation, branches: Sequence[Subgraph]) -> None:
        condition, _, _, *arguments = operation.inputs
        found = [self._copied(branch, arguments) for branch in branches]
        conditions = {(1,): condition}
        for *choices, output in zip(*found, operation.outputs, strict=True):
            result = self._operands[output]
            if result.type == OperandCode.TENSOR_BOOL8:
                self._choose_truths(condition, choices, output)
                continue
            if result.dimensions not in conditions:
                conditions[result.dimensions] = self._spread(condition, result.dimensions)
            self._append(OperationCode.SELECT, (conditions[result.dimensions], *choices), output)

    def _choose_truths(self, condition: int, choices: Sequence[int], output: int) -> None:
        """Let the output be the first choice and the condition, or the second one and not the condition."""
        when_true, when_false = choices
        first, second = (
            self._add(Operand(OperandCode.TENSOR_BOOL8, self._operands[output].dimensions)) for _ in choices
        )
        contrary = self._add(Operand(OperandCode.TENSOR_BOOL8, (1,)))
        self._append(OperationCode.LOGICAL_AND, (condition, when_true), first)
        self._append(OperationCode.LOGICAL_NOT, (condition,), contrary)
        self._append(OperationCode.LOGICAL_AND, (contrary, when_false), second)
        self._append(OperationCode.LOGICAL_OR, (first, second), output)

    def _copied(self, branch: Subgraph, arguments: Sequence[int]) -> list[int]:
        """Add a branch's operations on the arguments; return the operands that are its outputs."""
        places = dict(zip(branch.input_indexes, arguments, strict=True))

        def place(operand: int) -> int:
            if operand not in places:
                places[operand] = self._add(branch.operands[operand])
            return places[operand]

        for operation in branch.operations:
            inputs, outputs = (tuple(place(i) for i in some) for some in (operation.inputs, operation.outputs))
            self._operations.append(replace(operation, inputs=inputs, outputs=outputs))
        return [place(i) for i in branch.output_indexes]

    def _spread(self, condition: int, dims: Dimensions) -> int:
        """Return a tensor that has the condition everywhere."""
        kind = replace(self._operands[condition], dimensions=dims)
        nowhere = self._add(constant_operand(kind, np.zeros(dims, dtype_of(kind.type))))
        everywhere = self._add(Operand(OperandCode.TENSOR_BOOL8, dims))
        self._append(OperationCode.NOT_EQUAL, (condition, nowhere), everywhere)
        return everywhere

    def _append(self, code: OperationCode, inputs: tuple[int, ...], output: int) -> None:
        self._operations.append(Operation(code, inputs, (output,)))

    def _add(self, operand: Operand) -> int:
        is_output = operand.lifetime == OperandLifeTime.SUBGRAPH_OUTPUT
        self._operands.append(replace(operand, lifetime=OperandLifeTime.TEMPORARY_VARIABLE) if is_output else operand)
        return len(self._operands) - 1


def _is_small(model: Model, branch: Subgraph) -> bool:
    """Whether a branch may be computed for nothing."""
    if not all(_is_known(one) for one in branch.operands if one.lifetime != OperandLifeTime.NO_VALUE):
        return False
    if any(one.type in CONTROL_FLOW or one.type in _NOT_FOR_NOTHING for one in branch.operations):
        return False
    views = [operation_view(model, branch, one, at) for at, one in enumerate(branch.operations)]
    if any(op.inputs[i].value() is None for op in views for i in op.shape_inputs()):
        return False
    alone = replace(model, main=branch, referenced=())
    return one_thread_ns(alone) + _OPERATION_NS * len(views) <= GREATEST_NS


def _boundary(branch: Subgraph) -> list[Dimensions]:
    return [branch.operands[i].dimensions for i in (*branch.input_indexes, *branch.output_indexes)]


def _is_chosen(operand: Operand) -> bool:
    """Whether one of two values of its type can be taken."""
    return operand.type == OperandCode.TENSOR_BOOL8 or operand.type in definition(OperationCode.SELECT).data_types


def _is_known(operand: Operand) -> bool:
    """Whether it is a value of known dimensions."""
    if operand.lifetime == OperandLifeTime.NO_VALUE:
        return False
    return not is_tensor(operand.type) or not has_unknown_dimensions(operand.type, operand.dimensions)

# SPDX-License-Identifier: Apache-2.0
"""What a plan runs: device steps, and the IF and WHILE operations that it interprets itself (SURFACE section k).

    IF      if, then steps, goto end, else steps
    WHILE   while, condition steps, goto while, body steps, goto while

The models that IF and WHILE refer to are partitioned on their own, each time they are referred to. All operands share
one numbering, the slots: those of the main model first, under their own indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from nn_runtime.codes import OperationCode
from nn_runtime.errors import BadData
from nn_runtime.hal.types import CONSTANT_LIFETIMES, Model, Operand, OperandLifeTime
from nn_runtime.hal.versions.slicing import with_main
from nn_runtime.partition import INTERPRETER, StepModel, cut
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.device import Device

Place: TypeAlias = Callable[[Model], Sequence[int]]
"""Returns the device index, or INTERPRETER, of every operation of a model; raises BadData."""


@dataclass(frozen=True)
class SourceStep:
    """A step model with where it comes from, and its operands as slots.

    `source`: how one gets from the main model to the one that it is cut from, an operation and which of its inputs for
    every level. `number`: the operation of the main model that it belongs to, if it is cut from another model.
    """

    part: StepModel
    source: tuple[int, ...]
    number: int | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class IfStep:
    """Go to `then_at` or `else_at` by the condition; the branch's inputs and outputs become the outer operands."""

    condition: int
    outer_inputs: tuple[int, ...]
    outer_outputs: tuple[int, ...]
    then_inputs: tuple[int, ...]
    then_outputs: tuple[int, ...]
    else_inputs: tuple[int, ...]
    else_outputs: tuple[int, ...]
    then_at: int = 0
    else_at: int = 0


@dataclass(frozen=True)
class WhileStep:
    """Alternate between condition and body; at the end the first body outputs are copied to the outer ones.

    `name` is for messages.
    """

    name: str
    outer_inputs: tuple[int, ...]
    outer_outputs: tuple[int, ...]
    condition_inputs: tuple[int, ...]
    condition_output: int
    body_inputs: tuple[int, ...]
    body_outputs: tuple[int, ...]
    condition_at: int = 0
    body_at: int = 0
    exit_at: int = 0


@dataclass(frozen=True)
class GotoStep:
    """Go on at `target`."""

    target: int


ControlStep: TypeAlias = IfStep | WhileStep | GotoStep


@dataclass(frozen=True)
class _Owner:
    """An interpreted IF or WHILE: how one gets to it, and the main model's operation, both as in SourceStep."""

    source: tuple[int, ...]
    number: int


class Program:
    """A model cut into steps, with the models that interpreted IF and WHILE operations refer to."""

    def __init__(
        self, model: Model, devices: Sequence[Device], chosen: Sequence[int], place: Place, *, as_android: bool
    ) -> None:
        """`chosen`: device of every operation of the main model, which alone is cut `as_android`.

        Raises as `cut` and `place`.
        """
        self.steps: list[SourceStep | ControlStep] = []
        self.operands: list[Operand] = []
        self.aliases: dict[int, list[int]] = {}
        """Slots that hold the same data as another without a copy: from outer operands to inner ones."""
        self.temporaries: list[int] = []
        """Slots between steps that need memory."""
        self.constants: set[int] = set()
        """Constant or omitted operands that become inputs of inner models, or decide an IF."""
        self.operation_at: dict[int, int] = {}
        """Place in `steps` of every operation of the main model."""
        self._devices = devices
        self._place = place
        self._as_android = as_android
        self._add_graph(model, chosen, (), None)

    def _add_graph(self, model: Model, chosen: Sequence[int], source: tuple[int, ...], number: int | None) -> int:
        """Append the steps of a model and return the slot of its first operand."""
        base = len(self.operands)
        self.operands += model.main.operands
        for part in cut(model, self._devices, chosen, as_android=self._as_android and number is None):
            for at in part.operations if number is None else ():
                self.operation_at[at] = len(self.steps)
            inputs, outputs = ([base + index for index in indexes] for indexes in (part.inputs, part.outputs))
            self.temporaries += [slot for slot in outputs if self._is_temporary(slot)]
            if part.device != INTERPRETER:
                self.steps.append(SourceStep(part, source, number, tuple(inputs), tuple(outputs)))
                continue
            self.constants |= {slot for slot in inputs if self.operands[slot].lifetime in _VALUES}
            (at,) = part.operations
            owner = _Owner((*source, at), at if number is None else number)
            interpret = self._add_if if model.main.operations[at].type == OperationCode.IF else self._add_while
            interpret(model, inputs, outputs, owner)
        return base

    def _add_if(self, model: Model, inputs: Sequence[int], outputs: Sequence[int], owner: _Owner) -> None:
        condition, then_model, else_model, *arguments = inputs
        start = len(self.steps)
        self.steps.append(GotoStep(0))
        then_inputs, then_outputs = self._add_referenced(model, then_model, owner, 1)
        after_then = len(self.steps)
        self.steps.append(GotoStep(0))
        else_inputs, else_outputs = self._add_referenced(model, else_model, owner, 2)
        self.steps[after_then] = GotoStep(len(self.steps))
        self.steps[start] = IfStep(
            condition, tuple(arguments), tuple(outputs), then_inputs, then_outputs, else_inputs, else_outputs,
            start + 1, after_then + 1,
        )  # fmt: skip
        for inner in ((*then_inputs, *then_outputs), (*else_inputs, *else_outputs)):
            self._alias((*arguments, *outputs), inner)

    def _add_while(self, model: Model, inputs: Sequence[int], outputs: Sequence[int], owner: _Owner) -> None:
        condition_model, body_model, *arguments = inputs
        start = len(self.steps)
        self.steps.append(GotoStep(0))
        condition_inputs, (condition_output,) = self._add_referenced(model, condition_model, owner, 0)
        after_condition = len(self.steps)
        self.steps.append(GotoStep(start))
        body_inputs, body_outputs = self._add_referenced(model, body_model, owner, 1)
        self.steps.append(GotoStep(start))
        self.steps[start] = WhileStep(
            f"operation {owner.number} WHILE", tuple(arguments), tuple(outputs), condition_inputs, condition_output,
            body_inputs, body_outputs, start + 1, after_condition + 1, len(self.steps),
        )  # fmt: skip
        self.temporaries.append(condition_output)
        for inner in (condition_inputs, body_inputs):
            self._alias(arguments, inner)

    def _add_referenced(
        self, model: Model, slot: int, owner: _Owner, place: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Append the steps of the model to which input `place` refers; return its inputs and outputs as slots."""
        graph = model.referenced[self.operands[slot].location.offset]
        inner = with_main(model, graph)
        try:
            chosen = self._place(inner)
        except BadData as error:
            raise BadData(f"operation {owner.number}, the model of its input {place}: {error}") from error
        base = self._add_graph(inner, chosen, (*owner.source, place), owner.number)
        return tuple(base + i for i in graph.input_indexes), tuple(base + i for i in graph.output_indexes)

    def _alias(self, outer: Sequence[int], inner: Sequence[int]) -> None:
        for one, other in zip(outer, inner, strict=True):
            self.aliases.setdefault(one, []).append(other)

    def _is_temporary(self, slot: int) -> bool:
        return self.operands[slot].lifetime == OperandLifeTime.TEMPORARY_VARIABLE


_VALUES = CONSTANT_LIFETIMES | {OperandLifeTime.NO_VALUE}

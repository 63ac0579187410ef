# SPDX-License-Identifier: Apache-2.0
"""From operations to commands: as many operations as can be lowered at once make a segment.

An operation can be lowered when the dimensions of its inputs and the values of its parameters (`shape_inputs`) are
known. A model whose shapes are fixed is one segment, lowered at preparation. Elsewhere a segment ends before the first
operation that needs a value computed on the device, and after one whose output dimensions the device finds out; the
value is read back, and lowering goes on. IF and WHILE are no part of any segment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver import chain, fusion, persistent
from gpu_driver.bound import BoundOperand, BoundOperation, Fusion
from gpu_driver.in_place import shared_in_place
from gpu_driver.launch import Alias, CopyBuffer, Launch, Measured, Steps, memories_of
from gpu_driver.operations import launcher_of
from gpu_driver.passes import Rewritten, simplified
from gpu_driver.passes.identities import unchanged_input
from nn_runtime.codes import CONTROL_FLOW, OperationCode, operation_name
from nn_runtime.errors import BadData
from nn_runtime.hal.types import ErrorStatus, HalError, OperandLifeTime
from nn_runtime.hal.views import constant_array
from nn_runtime.operand import element_count, is_tensor, merge_dimensions
from nn_runtime.operations import output_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Scratch
    from gpu_driver.launch import Command, Lowered
    from nn_runtime.hal.types import Model
    from nn_runtime.operand import Array, Dimensions

_BOUNDARY = (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT)
MAX_ELEMENTS = 2**30
"""Of a tensor: kernels count in int, and the last work-item up to one's share beyond the end."""


@dataclass(frozen=True)
class MeasuredOutputs:
    """Outputs of a segment's last operation whose first dimension is read from `status` (see launch.Measured).

    `greatest`: the dimensions they have room for, by operand. `problem`: what a status that is not 0 means.
    """

    status: Scratch
    greatest: Mapping[int, Dimensions]
    problem: str


@dataclass(frozen=True)
class Segment:
    """Commands for operations [start, stop) and what they need.

    `operands`: every operand that commands touch, by index. `storage`: the operand whose memory an operand uses
    (itself unless aliased). `reads`: values of boundary operands needed before. `writes`: boundary operands it makes.
    `dimensions`: of every operand known once the segment is lowered. `parameters`: operands whose values must be read
    back before the next segment can be lowered. `done_ahead`: operations from `stop` on that were folded into it.
    `measured`: what the last operation finds out about its outputs.
    """

    start: int
    stop: int
    commands: tuple[Command, ...]
    operands: Mapping[int, BoundOperand]
    storage: Mapping[int, int]
    reads: frozenset[int]
    writes: frozenset[int]
    dimensions: Mapping[int, Dimensions]
    parameters: tuple[int, ...]
    done_ahead: frozenset[int]
    measured: MeasuredOutputs | None


@dataclass(frozen=True)
class Known:
    """What is known before a segment: dimensions and parameter values by operand, omitted inputs.

    `done`: operations done ahead of their place (folded into an earlier segment). `found`: dimensions that the model's
    inputs do not tell.
    """

    dimensions: Mapping[int, Dimensions]
    values: Mapping[int, Array]
    omitted: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()
    found: tuple[tuple[int, Dimensions], ...] = ()

    def with_found(self, dimensions: Mapping[int, Dimensions]) -> Known:
        """Return it with dimensions that a run found out."""
        found = (*self.found, *dimensions.items())
        return replace(self, dimensions={**self.dimensions, **dimensions}, found=found)


class Lowering:
    """Lowers one subgraph of a model for one device, simplified before; `at` counts the operations of `subgraph`."""

    def __init__(self, model: Model, device: DeviceProfile, graph: Rewritten | None = None) -> None:
        """Simplify, read constants and consumers once; without `graph` it is the main subgraph."""
        self._device = device
        rewritten = simplified(model, graph or Rewritten.of(model.main))
        self.subgraph = rewritten.subgraph
        self._origins = rewritten.origins
        self._tables, self._from_end, self._sums = rewritten.tables, rewritten.from_end, rewritten.sums
        self.operation_count = len(self.subgraph.operations)
        self._constants = {
            i: array
            for i, operand in enumerate(self.subgraph.operands)
            if (array := constant_array(model, operand)) is not None
        }
        self._consumers: dict[int, list[int]] = {}
        for at, operation in enumerate(self.subgraph.operations):
            for operand in dict.fromkeys(operation.inputs):
                self._consumers.setdefault(operand, []).append(at)
        self._producers = {o: at for at, operation in enumerate(self.subgraph.operations) for o in operation.outputs}
        self._model_outputs = frozenset(self.subgraph.output_indexes)

    def static_inputs(self) -> Known:
        """Return what the model alone fixes: dimensions of constants and of fully specified inputs."""
        dimensions = {i: array.shape for i, array in self._constants.items()}
        for i in self.subgraph.input_indexes:
            operand = self.subgraph.operands[i]
            if not is_tensor(operand.type) or (operand.dimensions and 0 not in operand.dimensions):
                dimensions[i] = operand.dimensions
        return Known(dimensions, {})

    def is_control_flow(self, at: int) -> bool:
        """Whether operation `at` is an IF or WHILE."""
        return at < self.operation_count and self.subgraph.operations[at].type in CONTROL_FLOW

    def constant(self, operand: int) -> Array | None:
        """Return the data of a model constant, or None."""
        return self._constants.get(operand)

    def fusion(self, at: int) -> Fusion:
        """Return what passes folded into operation `at` that its operands do not tell (see `Rewritten`)."""
        return Fusion(table=self._tables.get(at), from_end=at in self._from_end, is_sum=at in self._sums)

    def shape_inputs(self) -> frozenset[int]:
        """Return the model inputs whose values are parameters of an operation, so that a run must bring them."""
        found: set[int] = set()
        for at, operation in enumerate(self.subgraph.operations):
            view = self._bind(at, Known({}, {}), {})
            found.update(operation.inputs[i] for i in view.shape_inputs())
        return frozenset(found & set(self.subgraph.input_indexes))

    def has_omittable_inputs(self) -> bool:
        """Whether an operation can do without one of the model's inputs, so that an execution may omit that."""
        inputs = set(self.subgraph.input_indexes)
        return any(
            argument.omittable and operand in inputs
            for at, operation in enumerate(self.subgraph.operations)
            for argument, operand in zip(self._bind(at, Known({}, {}), {}).arguments, operation.inputs, strict=True)
        )

    def label(self, at: int) -> str:
        """Return `operation 7 SOFTMAX`, by the number in the model."""
        return f"operation {self._origins[at][0]} {operation_name(self.subgraph.operations[at].type)}"

    def origins(self, at: int) -> tuple[int, ...]:
        """Return the numbers in the model of all that an operation computes, first its own."""
        return self._origins[at]

    def lower(self, start: int, known: Known) -> Segment:
        """Lower as many operations from `start` as can be; `stop == start` where not even the first can be.

        Raises HalError where an operation's values are wrong or a shape contradicts the model.
        """
        return _SegmentBuilder(self, start, known).build()

    def bind(self, at: int, known: Known, operands: dict[int, BoundOperand]) -> BoundOperation | None:
        """Return operation `at` bound, or None while dimensions or parameter values are missing.

        Bound operands are shared through `operands`, so that the same operand is the same object.
        """
        op = self._bind(at, known, operands)
        ready = all(operand.omitted or operand.index in known.dimensions for operand in op.inputs)
        return op if ready and all(op.inputs[i].value() is not None for i in op.shape_inputs()) else None

    def missing_parameters(self, at: int, known: Known) -> tuple[int, ...]:
        """Return the operands whose values operation `at` still needs on the host."""
        op = self._bind(at, known, {})
        return tuple(op.inputs[i].index for i in op.shape_inputs() if op.inputs[i].value() is None)

    def sole_consumer(self, operand: int) -> int | None:
        """Return the one operation that reads a temporary, or None."""
        consumers = self._consumers.get(operand, [])
        return consumers[0] if len(consumers) == 1 and operand not in self._model_outputs else None

    def gathers(self, at: int, operand: int) -> bool:
        """Tell whether operation `at` is a GATHER that takes parts of an operand."""
        operation = self.subgraph.operations[at]
        return operation.type == OperationCode.GATHER and operation.inputs[0] == operand

    def crosses(self, operand: int, done: AbstractSet[int]) -> bool:
        """Tell whether an operand is used outside the operations `done`: by the model's caller or another segment."""
        if self.subgraph.operands[operand].lifetime in _BOUNDARY:
            return True
        return self._producers[operand] not in done or any(at not in done for at in self._consumers.get(operand, ()))

    def declared(self, operand: int) -> Dimensions:
        """Return an operand's dimensions as the model declares them."""
        return self.subgraph.operands[operand].dimensions

    def check_declared(self, operand: int, dims: Dimensions) -> None:
        """Raise BadData where computed dimensions contradict those that the model declares."""
        declared = self.declared(operand)
        if declared and merge_dimensions(declared, dims) != dims:
            raise BadData(f"computed dimensions {list(dims)} contradict {list(declared)}")

    def outputs_of(self, at: int) -> tuple[int, ...]:
        """Return the operands that operation `at` writes."""
        return self.subgraph.operations[at].outputs

    @property
    def device(self) -> DeviceProfile:
        """The device lowered for."""
        return self._device

    def _bind(self, at: int, known: Known, operands: dict[int, BoundOperand]) -> BoundOperation:
        operation = self.subgraph.operations[at]
        inputs = [self._operand(i, known, operands) for i in operation.inputs]
        outputs = [self._operand(i, known, operands) for i in operation.outputs]
        return BoundOperation(operation.type, inputs, outputs, self._origins[at][0])

    def _operand(self, index: int, known: Known, operands: dict[int, BoundOperand]) -> BoundOperand:
        if index not in operands:
            operand = self.subgraph.operands[index]
            operands[index] = BoundOperand(
                index,
                operand.type,
                known.dimensions.get(index, operand.dimensions),
                operand.scale,
                operand.zero_point,
                operand.channel_quant,
                operand.lifetime == OperandLifeTime.NO_VALUE or index in known.omitted,
                self._constants.get(index),
                known.values.get(index),
            )
        return operands[index]


class _SegmentBuilder:
    """State while one segment is lowered."""

    def __init__(self, lowering: Lowering, start: int, known: Known) -> None:
        self._lowering = lowering
        self._start = start
        self._dimensions: dict[int, Dimensions] = dict(known.dimensions)
        self._known = replace(known, dimensions=self._dimensions)
        self._operands: dict[int, BoundOperand] = {}
        self._commands: list[Command | Steps | Alias] = []
        self._folded: set[int] = set(known.done)
        self._postponed: dict[int, tuple[BoundOperation, tuple[int, ...]]] = {}
        self._measured: MeasuredOutputs | None = None

    def build(self) -> Segment:
        at, count = self._start, self._lowering.operation_count
        while at < count and self._measured is None:
            if at not in self._folded and not self._lower_one(at):
                break
            at += 1
        for concatenation, members in self._postponed.values():
            self._emit(concatenation, members)
        ends = at >= count or self._measured is not None or self._lowering.is_control_flow(at)
        return self._finish(at, () if ends else self._lowering.missing_parameters(at, self._known))

    def _lower_one(self, at: int) -> bool:
        if self._lowering.is_control_flow(at):
            return False
        op = self._bind_and_shape(at)
        if op is None:
            return False
        members = list(self._lowering.origins(at))
        op = self._fold_bounds(self._fold_residual(self._fold_parts(at, op, members), members), members)
        reader = self._gather_behind(op)
        if reader is None:
            self._emit(op, tuple(members))
        else:
            self._postponed[reader] = op, tuple(members)
        return True

    def _bind_and_shape(self, at: int) -> BoundOperation | None:
        """Bind an operation and give its outputs their dimensions; None where something is not known yet."""
        op = self._lowering.bind(at, self._known, self._operands)
        if op is None:
            return None
        self._refuse_empty_inputs(op)
        try:
            shapes = output_dimensions(op)
            for operand, shape in zip(op.outputs, shapes, strict=False):
                if 0 in shape or not op.definition.data_dependent:
                    self._lowering.check_declared(operand.index, shape)
                _check_size(shape)
                self._dimensions[operand.index] = shape
                self._operands[operand.index] = replace(operand, dimensions=shape)
        except BadData as error:
            message = str(error)
            label = "" if message.startswith(op.label) else f"{op.label}: "
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{label}{message}") from error
        outputs = [self._operands[operand.index] for operand in op.outputs]
        return BoundOperation(op.code, op.inputs, outputs, op.index, self._lowering.fusion(at))

    @staticmethod
    def _refuse_empty_inputs(op: BoundOperation) -> None:
        if op.definition.zero_sized_ok:
            return
        for i, operand in enumerate(op.inputs):
            if not operand.omitted and is_tensor(operand.type) and operand.count == 0:
                raise HalError(
                    ErrorStatus.GENERAL_FAILURE,
                    f"{op.label}: input {i} is empty ({list(operand.dimensions)}), which it does not take",
                )

    def _next(self, op: BoundOperation) -> tuple[int, BoundOperation] | None:
        """Return the only reader of `op`'s output and its place, if it can be lowered now."""
        at = self._lowering.sole_consumer(op.outputs[0].index)
        if at is None or at in self._folded:
            return None
        following = self._lowering.bind(at, self._known, self._operands)
        written = (o for o in following.inputs if not o.is_constant) if following else ()
        if following is None or any(operand.index not in self._dimensions for operand in written):
            return None
        return at, following

    def _fold_residual(self, op: BoundOperation, members: list[int]) -> BoundOperation:
        at, following = self._next(op) or (0, None)
        residual = fusion.foldable_residual(op, following, self._lowering.device) if following else None
        if following is None or residual is None or not self._is_made(residual):
            return op
        shaped = self._bind_and_shape(at)
        if shaped is None:
            return op
        self._take(at, members)
        folded = replace(op.fusion, activation=following.fuse_code(), residual=residual, product=op.outputs[0])
        return BoundOperation(op.code, op.inputs, shaped.outputs, op.index, folded)

    def _fold_bounds(self, op: BoundOperation, members: list[int]) -> BoundOperation:
        """Fold a MINIMUM and a MAXIMUM of one number, in any order."""
        while True:
            at, following = self._next(op) or (0, None)
            bounds = fusion.foldable_bounds(op, following) if following else None
            shaped = None if bounds is None else self._bind_and_shape(at)
            if bounds is None or shaped is None:
                return op
            self._take(at, members)
            op = BoundOperation(op.code, op.inputs, shaped.outputs, op.index, replace(op.fusion, bounds=bounds))

    def _gather_behind(self, op: BoundOperation) -> int | None:
        """Return the GATHER that alone reads a CONCATENATION, which waits for its indices to be made."""
        reader = self._lowering.sole_consumer(op.outputs[0].index) if op.code == OperationCode.CONCATENATION else None
        return reader if reader is not None and self._lowering.gathers(reader, op.outputs[0].index) else None

    def _fold_parts(self, at: int, op: BoundOperation, members: list[int]) -> BoundOperation:
        """Let a GATHER read the parts of a CONCATENATION that waited for it, or let that be done before it."""
        concatenation, others = self._postponed.pop(at, (None, ()))
        if concatenation is None:
            return op
        parts = fusion.foldable_parts(concatenation, op)
        if parts is None:
            self._emit(concatenation, others)
            return op
        members += others
        return BoundOperation(
            op.code, (parts[0], *op.inputs[1:]), op.outputs, op.index, replace(op.fusion, behind=parts[1])
        )

    def _is_made(self, operand: BoundOperand) -> bool:
        return operand.is_constant or operand.index in self._dimensions

    def _take(self, at: int, members: list[int]) -> None:
        self._folded.add(at)
        members += self._lowering.origins(at)

    def _emit(self, op: BoundOperation, members: tuple[int, ...]) -> None:
        try:
            if any(operand.count for operand in op.outputs):
                self._launch(op, members)
        except BadData as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, str(error)) from error

    def _launch(self, op: BoundOperation, members: tuple[int, ...]) -> None:
        launcher = launcher_of(op.code)
        if launcher is None:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"{op.label}: no launcher")
        unchanged = unchanged_input(op)
        if unchanged is not None:
            self._commands.append(Alias(op.inputs[unchanged], op.outputs[0]))
            return
        lowered: Lowered = launcher(op, self._lowering.device)
        if isinstance(lowered, Measured):
            greatest = {operand.index: operand.dimensions for operand in op.outputs}
            self._measured = MeasuredOutputs(lowered.status, greatest, f"{op.label}: {lowered.problem}")
            lowered = lowered.launches
        for one in lowered if isinstance(lowered, tuple) else (lowered,):
            self._commands.append(replace(one, operations=members) if isinstance(one, Launch | Steps) else one)

    def _finish(self, stop: int, parameters: tuple[int, ...]) -> Segment:
        done = set(range(self._start, stop)) | self._folded
        written = {o for at in done - self._known.done for o in self._lowering.outputs_of(at)}
        named = written | _touched(self._commands)
        variable = {i for i in named if not self._operands[i].is_constant}
        boundary = {i for i in variable if self._lowering.crosses(i, done)}
        aliased, resolved = _resolve_aliases(self._commands, boundary)
        storage = shared_in_place(resolved, aliased, boundary)
        unchanged = variable - {storage.get(i, i) for i in written}
        commands = chain.merge(resolved, storage, boundary, unchanged, self._lowering.device)
        commands = persistent.merge(commands, storage, boundary, self._lowering.device)
        touched = _touched(commands)
        used = {storage.get(i, i) for i in touched if i in variable}
        return Segment(
            self._start,
            stop,
            tuple(commands),
            {i: self._operands[i] for i in touched | used | boundary},
            storage,
            frozenset(used - written),
            frozenset(boundary & written),
            self._dimensions,
            parameters,
            frozenset(at for at in self._folded if at >= stop),
            self._measured,
        )


def _check_size(dims: Dimensions) -> None:
    if element_count(dims) > MAX_ELEMENTS:
        raise BadData(f"computed dimensions {list(dims)} have more than 2^30 elements, which kernels cannot index")


def _touched(commands: Iterable[Command | Steps | Alias]) -> set[int]:
    return {one.index for command in commands for one in memories_of(command) if isinstance(one, BoundOperand)}


def _resolve_aliases(
    commands: list[Command | Steps | Alias], boundary: set[int]
) -> tuple[dict[int, int], list[Command | Steps]]:
    """Let aliased operands share memory, unless both are at the boundary or one is constant: then copy."""
    storage: dict[int, int] = {}

    def root(index: int) -> int:
        while index in storage:
            index = storage[index]
        return index

    kept: list[Command | Steps] = []
    for command in commands:
        if not isinstance(command, Alias):
            kept.append(command)
            continue
        source, destination = root(command.source.index), command.destination.index
        if command.source.is_constant or (source in boundary and destination in boundary):
            kept.append(CopyBuffer(command.source, command.destination))
        elif destination in boundary:
            storage[source] = destination
        else:
            storage[destination] = source
    return {index: root(index) for index in storage}, kept

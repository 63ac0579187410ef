# SPDX-License-Identifier: Apache-2.0
"""The execution plan: steps on devices, and control flow between them, made at compilation (SURFACE section k)."""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from nn_runtime.codes import OEM_OPERATION, is_extension_code, operation_name
from nn_runtime.cost import CostModel
from nn_runtime.errors import BadData
from nn_runtime.failures import error_of_hal
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, OperandLifeTime
from nn_runtime.hal.views import constant_array
from nn_runtime.operand import has_unknown_dimensions
from nn_runtime.partition import INTERPRETER, Placement, place_by_capabilities, support_for_plan
from nn_runtime.preparation import PrepareOptions, prepare
from nn_runtime.program import IfStep, Program, SourceStep, WhileStep
from nn_runtime.requests import Argument
from nn_runtime.step import Step
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.device import Device
    from nn_runtime.hal.interfaces import OperationSupport
    from nn_runtime.hal.types import Model, Operand
    from nn_runtime.program import ControlStep

_log = logging.getLogger("nn_runtime.compilation")


class PartitionMode(str, Enum):
    """How operations are placed: by the capability tables exactly as Android does, or by estimated time."""

    AOSP = "aosp"
    COST = "cost"


@dataclass(frozen=True)
class PlanOptions(PrepareOptions):
    """What a compilation asks of its plan. `fallback`: the CPU reference device may take over (partitioning mode 1).

    `whole_on`: the name of the device for the whole model in mode "cost" if it can, whatever the estimates.
    """

    deadline_ns: int | None = None
    fallback: bool = True
    partition: PartitionMode = PartitionMode.AOSP
    whole_on: str | None = None


@dataclass(frozen=True)
class StepRole:
    """Use of a model's input or output by a step: as the step's input or output `index`."""

    step: Step
    is_input: bool
    index: int


class PlanUser(Protocol):
    """What runs a plan: an execution."""

    @property
    def is_computing(self) -> bool:
        """Whether it runs the plan now."""


@dataclass(frozen=True)
class _Placed:
    """The device index of every operation (or INTERPRETER), mode "cost"'s estimates by device, and names of rivals."""

    chosen: list[int]
    by_device_ns: Sequence[Mapping[str, float]]
    rivals: list[str]


class Plan:
    """Steps in order, and between them the control flow that the plan interprets.

    One step is a simple plan: the whole model goes to that device.
    """

    def __init__(
        self,
        model: Model,
        program: Sequence[Step | ControlStep],
        source: Program | None,
        placements: Sequence[Placement],
        options: PlanOptions,
        reference: Device | None,
        rivals: Sequence[str] = (),
    ) -> None:
        """`source`: what `program` was prepared from, None for a simple plan.

        `reference`: the CPU device that may take over, None where nothing may. `rivals`: names of devices that by the
        estimates may alone be as fast.
        """
        self.model = model
        self.files = tuple(pool for pool in model.pools if pool.is_file)
        """Constants in files that others may cut short."""
        self.program = tuple(program)
        self.steps = tuple(step for step in program if isinstance(step, Step))
        """The steps on devices."""
        self.placements = tuple(placements)
        self.options = options
        self.reference = reference
        self.rivals = tuple(rivals)
        self.operands = model.main.operands if source is None else tuple(source.operands)
        """Operands of the main model and of the models that interpreted control flow refers to, by slot."""
        self.temporaries = () if source is None else tuple(source.temporaries)
        """Slots between steps that need memory."""
        constants = () if source is None else source.constants
        self.constants = {slot: _constant_argument(model, self.operands[slot]) for slot in constants}
        """Constants that control flow reads or hands to inner models, by slot."""
        self._aliases = {} if source is None else source.aliases
        self._lock = threading.Lock()
        self._whole_on_reference: Step | None = None
        self.is_closed = False
        """Whether the prepared models are freed as soon as nothing runs the plan; a user that ends then says so."""
        self._users: weakref.WeakSet[PlanUser] = weakref.WeakSet()
        self._users_lock = threading.RLock()
        self._is_freed = False

    @property
    def is_simple(self) -> bool:
        """Whether the whole model is one step."""
        return len(self.program) == 1

    @functools.cached_property
    def has_dynamic_temporaries(self) -> bool:
        """Whether the size of a temporary between steps shows at a run only."""
        operands = (self.operands[slot] for slot in self.temporaries)
        return any(has_unknown_dimensions(operand.type, operand.dimensions) for operand in operands)

    def roles_of(self, is_input: bool, index: int) -> list[StepRole]:
        """Return every use of the model's input or output `index` by the steps, also through control flow."""
        main = self.model.main
        slots = self._with_aliases((main.input_indexes if is_input else main.output_indexes)[index])
        found = []
        for step in self.steps:
            found += [StepRole(step, True, at) for at, slot in enumerate(step.inputs) if slot in slots]
            found += [StepRole(step, False, at) for at, slot in enumerate(step.outputs) if slot in slots]
        return found

    def reads_output(self, index: int) -> bool:
        """Tell whether a step or control flow reads the model's output `index`."""
        slots = self._with_aliases(self.model.main.output_indexes[index])
        return any(slot in slots for step in self.program for slot in _slots_read(step))

    def _with_aliases(self, slot: int) -> list[int]:
        """Return a slot and those inside of control flow that stand for the same operand."""
        slots = [slot]
        for one in slots:
            slots += self._aliases.get(one, ())
        return slots

    def whole_on_reference(self) -> Step:
        """Return the whole model prepared on the CPU device that may take over; raises HalError."""
        if self.reference is None:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "no device may take over")
        with self._lock:
            if self._whole_on_reference is None:
                originals = [placement.operation for placement in self.placements]
                self._whole_on_reference = _whole_model(self.model, originals, self.reference, self.options, None)
            return self._whole_on_reference

    def used_by(self, user: PlanUser) -> None:
        """Note what may run the plan."""
        with self._users_lock:
            self._users.add(user)

    def close(self) -> None:
        """Free every prepared model, once no user computes; none may begin any more."""
        self.is_closed = True
        self.free_unused()

    def free_unused(self) -> None:
        """Free every prepared model of a closed plan, unless a user computes or that is done."""
        with self._users_lock:
            is_used = any(user.is_computing for user in self._users)  # one that finds its end frees the plan itself
            if is_used or self._is_freed:
                return
            self._is_freed = True
        for step in self.steps:
            step.close()
        if self._whole_on_reference is not None:
            self._whole_on_reference.close()


def _slots_read(step: Step | ControlStep) -> tuple[int, ...]:
    if isinstance(step, Step):
        return step.inputs
    if isinstance(step, IfStep):
        return (step.condition, *step.outer_inputs)
    return step.outer_inputs if isinstance(step, WhileStep) else ()


def _constant_argument(model: Model, operand: Operand) -> Argument:
    """Return a constant as a step's argument: in its pool, or by pointer; nothing for an omitted operand."""
    location = operand.location
    if operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE:
        pool = model.pools[location.pool_index]
        return Argument(operand.dimensions, pool=pool, offset=location.offset, length=location.length)
    data = constant_array(model, operand)
    return Argument() if data is None else Argument(operand.dimensions, pointer=data, length=data.nbytes)


def make_plan(model: Model, run_order: Sequence[int], devices: Sequence[Device], options: PlanOptions) -> Plan:
    """Partition a model over devices and prepare every step.

    Raises NNError: BadData for an operation that no device takes (never answered by a fallback); with
    `options.fallback` any other failure gives a simple plan on the CPU device among `devices`.
    """
    support = [support_for_plan(model, device) for device in devices]
    placed = _place(model, run_order, devices, support, options)
    reference = next((device for device in devices if device.is_reference), None) if options.fallback else None
    if _has_operations_of_vendors(model):
        reference = None
    source, program = _prepared_program(model, run_order, devices, placed.chosen, options, reference)

    def placement(at: int) -> Placement:
        number = source.operation_at[at] if source is not None else 0
        step = program[number]
        where = step.device if isinstance(step, Step) else _interpreting(devices)
        answers = {device.name: support[index][at] for index, device in enumerate(devices)}
        own_ns = answers[where.name].estimated_ns if isinstance(step, Step) else None
        return Placement(
            operation=run_order[at],
            code=model.main.operations[at].type,
            device=where,
            step=number,
            support=answers,
            estimated_ns=placed.by_device_ns[at].get(where.name, own_ns),
            elsewhere_ns={name: ns for name, ns in placed.by_device_ns[at].items() if name != where.name},
        )

    placements = [placement(at) for at in range(len(model.main.operations))]
    _log_plan(placements, len(program))
    return Plan(model, program, source, placements, options, reference, placed.rivals)


def _prepared_program(
    model: Model,
    run_order: Sequence[int],
    devices: Sequence[Device],
    chosen: Sequence[int],
    options: PlanOptions,
    reference: Device | None,
) -> tuple[Program | None, list[Step | ControlStep]]:
    """Return what a model is cut into, None for one step, and that prepared; after a failure the whole on `reference`.

    Raises NNError.
    """
    try:
        if len(set(chosen)) == 1 and chosen[0] != INTERPRETER:
            return None, [_whole_model(model, run_order, devices[chosen[0]], options, options.deadline_ns)]
        as_android = options.partition == PartitionMode.AOSP
        place = functools.partial(_place_inner, devices=devices, options=options)
        source = Program(model, devices, chosen, place, as_android=as_android)
        return source, _prepared_steps(source, run_order, devices, options)
    except HalError as error:
        failure = error_of_hal(error, "compilation")
        if reference is None or isinstance(failure, BadData):
            raise failure from error
        _log.warning("%s; the whole model goes to %s", failure, reference.name)
    try:
        return None, [_whole_model(model, run_order, reference, options, options.deadline_ns)]
    except HalError as error:
        raise error_of_hal(error, f"compilation on {reference.name}") from error


def _interpreting(devices: Sequence[Device]) -> Device:
    """Return the CPU device, which has won what the plan interprets."""
    return next(device for device in devices if device.is_reference)


def _has_operations_of_vendors(model: Model) -> bool:
    """Tell whether there are operations that the CPU can never take over."""
    operations = (operation for graph in (model.main, *model.referenced) for operation in graph.operations)
    return any(operation.type == OEM_OPERATION or is_extension_code(operation.type) for operation in operations)


def _place(
    model: Model,
    run_order: Sequence[int],
    devices: Sequence[Device],
    support: Sequence[Sequence[OperationSupport]],
    options: PlanOptions,
) -> _Placed:
    chosen = place_by_capabilities(model, devices, support, options.preference, run_order)
    must_interpret = any(
        device == INTERPRETER and not any(answers[at].supported for answers in support)
        for at, device in enumerate(chosen)
    )
    by_cost = options.partition == PartitionMode.COST and options.preference != ExecutionPreference.LOW_POWER
    if by_cost and not must_interpret:
        # The cost of steps inside a loop is not modelled: IF and WHILE stay whole, on the CPU device where it won.
        whole = [devices.index(_interpreting(devices)) if device == INTERPRETER else device for device in chosen]
        costs = CostModel(model, devices, support, options.preference)
        fixed = next((at for at, device in enumerate(devices) if device.name == options.whole_on), None)
        found = costs.place([whole]) if fixed is None or not costs.takes_all(fixed) else costs.whole_on(fixed)
        by_device = [costs.by_device_ns(at) for at in range(len(chosen))]
        return _Placed(found.chosen, by_device, [devices[rival].name for rival in found.rivals])
    return _Placed(chosen, [{}] * len(chosen), [])


def _place_inner(model: Model, devices: Sequence[Device], options: PlanOptions) -> list[int]:
    """Place the operations of a model that interpreted control flow refers to."""
    support = [support_for_plan(model, device) for device in devices]
    numbers = range(len(model.main.operations))
    return place_by_capabilities(model, devices, support, options.preference, numbers)


def _prepared_steps(
    source: Program, run_order: Sequence[int], devices: Sequence[Device], options: PlanOptions
) -> list[Step | ControlStep]:
    """Prepare every step model of a program; raises HalError."""
    program: list[Step | ControlStep] = []
    try:
        for part in source.steps:
            if isinstance(part, SourceStep):
                program.append(_prepared_step(part, devices, run_order, options))
            else:
                program.append(part)
    except BaseException:
        for step in program:
            if isinstance(step, Step):
                step.close()
        raise
    return program


def _whole_model(
    model: Model, run_order: Sequence[int], device: Device, options: PlanOptions, deadline_ns: int | None
) -> Step:
    main = model.main
    prepared, token = prepare(device, model, options, deadline_ns)
    return Step(device, model, prepared, run_order, main.input_indexes, main.output_indexes, token)


def _prepared_step(step: SourceStep, devices: Sequence[Device], run_order: Sequence[int], options: PlanOptions) -> Step:
    part = step.part
    device = devices[part.device]
    prepared, token = prepare(device, part.model, options, None, [(*step.source, at) for at in part.operations])
    numbers = part.operations if step.number is None else [step.number] * len(part.operations)
    originals = [run_order[at] for at in numbers]
    return Step(device, part.model, prepared, originals, step.inputs, step.outputs, token)


def _log_plan(placements: Sequence[Placement], count: int) -> None:
    _log.debug("%s plan: %d operations in %d steps", "simple" if count == 1 else "compound", len(placements), count)
    if _log.isEnabledFor(logging.DEBUG):
        for placement in placements:
            name = operation_name(placement.code)
            _log.debug("operation %d %s: step %d, %s", placement.operation, name, placement.step, placement.device.name)

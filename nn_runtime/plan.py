# SPDX-License-Identifier: Apache-2.0
"""The execution plan: steps on devices, made at compilation, and its runs (SURFACE section k).

`make_plan` partitions and prepares. A `Run` belongs to one execution: it binds the arguments once, keeps requests and
temporaries, and may be executed again and again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from nn_runtime.codes import OEM_OPERATION, operation_name
from nn_runtime.cost import CostModel
from nn_runtime.errors import BadData, OutputInsufficientSize
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority, Timing
from nn_runtime.operand import MAX_SIZE_BYTES, dtype_of, has_unknown_dimensions, size_bytes
from nn_runtime.partition import Placement, cut, place_by_capabilities, support_for_plan
from nn_runtime.step import Argument, RunOptions, Step, error_of_hal, prepare, request_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.devices import Device
    from nn_runtime.hal.interfaces import OperationSupport
    from nn_runtime.hal.types import ExecutionResult, Model, OutputShape, Request
    from nn_runtime.operand import Dimensions
    from nn_runtime.partition import StepModel

_log = logging.getLogger("nn_runtime.compilation")
_log_execution = logging.getLogger("nn_runtime.execution")

PAGE_BYTES = 4096


class PartitionMode(str, Enum):
    """How operations are placed: by the capability tables exactly as Android does, or by estimated time."""

    AOSP = "aosp"
    COST = "cost"


@dataclass(frozen=True)
class PlanOptions:
    """What a compilation asks of its plan. `fallback`: the CPU reference device may take over (partitioning mode 1)."""

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    deadline_ns: int | None = None
    fallback: bool = True
    partition: PartitionMode = PartitionMode.AOSP


@dataclass(frozen=True)
class StepRole:
    """Use of a model's input or output by a step: as the step's input or output `index`."""

    step: Step
    is_input: bool
    index: int


@dataclass(frozen=True)
class Outcome:
    """A successful run: dimensions of every output, and times (unknown for several steps)."""

    dimensions: tuple[Dimensions, ...]
    timing: Timing


class Run(Protocol):
    """A plan with bound arguments."""

    def execute(self, options: RunOptions) -> Outcome:
        """Run once; raises NNError (OutputInsufficientSize with the true shapes)."""


class Plan:
    """Steps in order. One step is a simple plan: the whole model goes to that device."""

    def __init__(
        self,
        model: Model,
        steps: Sequence[Step],
        placements: Sequence[Placement],
        options: PlanOptions,
        reference: Device | None,
    ) -> None:
        """`reference`: the CPU device that may take over, None where nothing may."""
        self.model = model
        self.steps = tuple(steps)
        self.placements = tuple(placements)
        self.options = options
        self.reference = reference
        self._lock = threading.Lock()
        self._whole_on_reference: Step | None = None

    @property
    def is_simple(self) -> bool:
        """Whether the whole model is one step."""
        return len(self.steps) == 1

    def roles_of(self, is_input: bool, index: int) -> list[StepRole]:
        """Return every use of the model's input or output `index` by the steps."""
        main = self.model.main
        operand = (main.input_indexes if is_input else main.output_indexes)[index]
        found = []
        for step in self.steps:
            found += [StepRole(step, True, at) for at, i in enumerate(step.inputs) if i == operand]
            found += [StepRole(step, False, at) for at, i in enumerate(step.outputs) if i == operand]
        return found

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Run:
        """Return a run of the plan with these arguments."""
        if self.is_simple:
            return _SimpleRun(self, inputs, outputs)
        return _CompoundRun(self, inputs, outputs)

    def whole_on_reference(self) -> Step:
        """Return the whole model prepared on the CPU device that may take over; raises HalError."""
        if self.reference is None:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "no device may take over")
        with self._lock:
            if self._whole_on_reference is None:
                originals = [placement.operation for placement in self.placements]
                self._whole_on_reference = _whole_model(self.model, originals, self.reference, self.options)
            return self._whole_on_reference

    def close(self) -> None:
        """Free every prepared model."""
        for step in self.steps:
            step.close()
        if self._whole_on_reference is not None:
            self._whole_on_reference.close()


def make_plan(model: Model, run_order: Sequence[int], devices: Sequence[Device], options: PlanOptions) -> Plan:
    """Partition a model over devices and prepare every step.

    Raises NNError: BadData for an operation that no device takes (never answered by a fallback); with
    `options.fallback` any other failure gives a simple plan on the CPU device among `devices`.
    """
    support = [support_for_plan(model, device) for device in devices]
    chosen, estimates = _place(model, run_order, devices, support, options)
    reference = next((device for device in devices if device.is_reference), None) if options.fallback else None
    if any(operation.type == OEM_OPERATION for operation in model.main.operations):
        reference = None
    try:
        steps = _prepared_steps(model, run_order, devices, chosen, options)
    except HalError as error:
        failure = error_of_hal(error, "compilation")
        if reference is None or isinstance(failure, BadData):
            raise failure from error
        _log.warning("%s; the whole model goes to %s", failure, reference.name)
        try:
            steps = [_whole_model(model, run_order, reference, options)]
        except HalError as second:
            raise error_of_hal(second, f"compilation on {reference.name}") from second
    step_of = {at: number for number, step in enumerate(steps) for at in step.operations}
    placements = [
        Placement(
            operation=run_order[at],
            code=operation.type,
            device=steps[step_of[at]].device,
            step=step_of[at],
            support={device.name: support[index][at] for index, device in enumerate(devices)},
            estimated_ns=estimates[at],
        )
        for at, operation in enumerate(model.main.operations)
    ]
    _log_plan(placements, len(steps))
    return Plan(model, steps, placements, options, reference)


def _place(
    model: Model,
    run_order: Sequence[int],
    devices: Sequence[Device],
    support: Sequence[Sequence[OperationSupport]],
    options: PlanOptions,
) -> tuple[list[int], Sequence[float | None]]:
    """Return the device index of every operation and its estimated time, where known."""
    chosen = place_by_capabilities(model, devices, support, options.preference, run_order)
    if options.partition == PartitionMode.COST and options.preference != ExecutionPreference.LOW_POWER:
        placed = CostModel(model, devices, support, options.preference).place([chosen])
        return placed.chosen, placed.estimates_ns
    return chosen, [support[device][at].estimated_ns for at, device in enumerate(chosen)]


def _prepared_steps(
    model: Model, run_order: Sequence[int], devices: Sequence[Device], chosen: Sequence[int], options: PlanOptions
) -> list[Step]:
    if len(set(chosen)) == 1:
        return [_whole_model(model, run_order, devices[chosen[0]], options)]
    steps: list[Step] = []
    try:
        for part in cut(model, devices, chosen):
            steps.append(_prepared_step(part, devices[part.device], run_order, options))
    except HalError:
        for step in steps:
            step.close()
        raise
    return steps


def _whole_model(model: Model, run_order: Sequence[int], device: Device, options: PlanOptions) -> Step:
    main = model.main
    prepared = prepare(device, model, options.preference, options.priority, options.deadline_ns)
    return Step(device, model, prepared, range(len(run_order)), run_order, main.input_indexes, main.output_indexes)


def _prepared_step(part: StepModel, device: Device, run_order: Sequence[int], options: PlanOptions) -> Step:
    prepared = prepare(device, part.model, options.preference, options.priority, None)
    originals = [run_order[at] for at in part.operations]
    return Step(device, part.model, prepared, part.operations, originals, part.inputs, part.outputs)


def _log_plan(placements: Sequence[Placement], count: int) -> None:
    _log.debug("%s plan: %d operations in %d steps", "simple" if count == 1 else "compound", len(placements), count)
    if _log.isEnabledFor(logging.DEBUG):
        for placement in placements:
            name = operation_name(placement.code)
            _log.debug("operation %d %s: step %d, %s", placement.operation, name, placement.step, placement.device.name)


class _SimpleRun:
    """The whole model on one device."""

    def __init__(self, plan: Plan, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> None:
        self._plan = plan
        self._step = plan.steps[0]
        self._inputs = inputs
        self._outputs = outputs
        self._known = tuple(argument.dimensions for argument in outputs)
        self._request = request_of(plan.model, inputs, outputs)

    def execute(self, options: RunOptions) -> Outcome:
        try:
            result = self._step.execute(self._request, options)
        except HalError as error:
            where = f"execution on {self._step.device.name}"
            if error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or self._step.device.is_reference:
                raise error_of_hal(error, where) from error
            return _fall_back(self._plan, self._inputs, self._outputs, options, error, where)
        return Outcome(_dimensions_of(result, self._known), result.timing)


class _CompoundRun:
    """Several steps, with the temporaries between them.

    Temporaries of known size share one pool. One of unknown size has a pool of its own, which grows when its producer
    reports it insufficient; the producer then runs again.
    """

    def __init__(self, plan: Plan, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> None:
        main = plan.model.main
        self._plan = plan
        self._inputs = inputs
        self._outputs = outputs
        self._arguments = dict(zip(main.input_indexes, inputs, strict=True))
        self._arguments.update(zip(main.output_indexes, outputs, strict=True))
        self._results: dict[int, Dimensions] = {}
        """Dimensions of this run's results of unknown size, by operand."""
        self._dynamic = {index for step in plan.steps for index in step.outputs if self._is_dynamic(index)}
        self._read: dict[int, tuple[Argument, Argument]] = {}
        """Results of unknown size as later steps read them: the argument written, and the same cut to size."""
        self._requests: list[tuple[tuple[Argument, ...], Request] | None] = [None] * len(plan.steps)
        self._allocated = False

    def execute(self, options: RunOptions) -> Outcome:
        self._results = {}
        if not self._allocated:
            try:
                self._allocate()
            except HalError as error:
                return _fall_back(self._plan, self._inputs, self._outputs, options, error, "execution")
            self._allocated = True
        for number, step in enumerate(self._plan.steps):
            try:
                self._execute_step(number, step, options)
            except HalError as error:
                where = f"execution on {step.device.name}, step {number}"
                if error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
                    raise OutputInsufficientSize(f"{where}: {error}", self._shapes_so_far(step, error)) from error
                return _fall_back(self._plan, self._inputs, self._outputs, options, error, where)
        known = zip(self._plan.model.main.output_indexes, self._outputs, strict=True)
        return Outcome(tuple(self._results.get(index, argument.dimensions) for index, argument in known), Timing())

    def _execute_step(self, number: int, step: Step, options: RunOptions) -> None:
        """Run one step, on the CPU device if its own fails and that is allowed; raises HalError."""
        reference = self._plan.reference
        try:
            result = self._until_large_enough(number, step, options, on_host=False)
        except HalError as error:
            if error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or reference is None or step.device.is_reference:
                raise
            _log_execution.warning(
                "step %d on %s failed: %s; it goes to %s", number, step.device.name, error, reference.name
            )
            other = step.on_reference(reference, self._plan.options.preference, self._plan.options.priority)
            result = self._until_large_enough(number, other, options, on_host=True)
        self._take_results(step, result)

    def _until_large_enough(self, number: int, step: Step, options: RunOptions, on_host: bool) -> ExecutionResult:
        while True:
            try:
                if on_host:
                    return _execute_on_host(step, *self._step_arguments(step), options)
                return step.execute(self._request(number, step), options)
            except HalError as error:
                if error.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or not self._grow(step, error.output_shapes):
                    raise

    def _request(self, number: int, step: Step) -> Request:
        """Return the step's request: the one of the run before while no argument has changed."""
        inputs, outputs = self._step_arguments(step)
        kept = self._requests[number]
        arguments = (*inputs, *outputs)
        if kept is not None and all(a is b for a, b in zip(kept[0], arguments, strict=True)):
            return kept[1]
        request = request_of(step.model, inputs, outputs)
        self._requests[number] = (arguments, request)
        return request

    def _step_arguments(self, step: Step) -> tuple[list[Argument], list[Argument]]:
        inputs = [self._as_input(index) if index in self._results else self._arguments[index] for index in step.inputs]
        return inputs, [self._arguments[index] for index in step.outputs]

    def _as_input(self, index: int) -> Argument:
        """Return a result of unknown size as an input of a later step: cut to the size it turned out to have."""
        argument, dims = self._arguments[index], self._results[index]
        length = size_bytes(self._plan.model.main.operands[index].type, dims)
        kept = self._read.get(index)
        if kept is not None and kept[0] is argument and kept[1].dimensions == dims:
            return kept[1]
        if argument.pointer is not None:
            flat = argument.pointer.reshape(-1).view("u1")
            cut_to_size = replace(argument, dimensions=dims, pointer=flat[:length], length=length, padding=0)
        elif isinstance(argument.pool, SharedMemory):
            cut_to_size = replace(argument, dimensions=dims, length=length, padding=0)
        else:
            cut_to_size = replace(argument, dimensions=dims)
        self._read[index] = (argument, cut_to_size)
        return cut_to_size

    def _is_dynamic(self, index: int) -> bool:
        operand = self._plan.model.main.operands[index]
        argument = self._arguments.get(index)
        dims = operand.dimensions if argument is None else argument.dimensions
        return has_unknown_dimensions(operand.type, dims)

    def _allocate(self) -> None:
        """Give every temporary between steps its memory: page-aligned slices of one pool, or a pool of its own."""
        operands = self._plan.model.main.operands
        temporaries = [index for step in self._plan.steps for index in step.outputs if index not in self._arguments]
        sizes = {
            index: size_bytes(operands[index].type, operands[index].dimensions)
            for index in temporaries
            if index not in self._dynamic
        }
        offsets: dict[int, int] = {}
        end = 0
        for index, size in sizes.items():
            offsets[index] = end
            end += -(-size // PAGE_BYTES) * PAGE_BYTES
        pool = _new_pool(end) if end else None
        for index in temporaries:
            operand = operands[index]
            if index in sizes:
                self._arguments[index] = Argument(
                    operand.dimensions, pool=pool, offset=offsets[index], length=sizes[index]
                )
            else:
                self._arguments[index] = _own_pool(operand.dimensions, dtype_of(operand.type).itemsize)

    def _grow(self, step: Step, shapes: Sequence[OutputShape]) -> bool:
        """Enlarge the insufficient temporaries of a step; False if a model output is among the insufficient."""
        short = [(i, shape) for i, shape in zip(step.outputs, shapes, strict=True) if not shape.is_sufficient]
        operands = self._plan.model.main.operands
        main_outputs = self._plan.model.main.output_indexes
        if not short or any(index in main_outputs or index not in self._dynamic for index, _ in short):
            return False
        for index, shape in short:
            before = self._arguments[index].length
            reported = size_bytes(operands[index].type, shape.dimensions)
            self._arguments[index] = _own_pool(operands[index].dimensions, max(reported, 2 * before))
        return True

    def _take_results(self, step: Step, result: ExecutionResult) -> None:
        """Note the dimensions of results of unknown size; an empty temporary cannot cross between steps."""
        for index, shape in zip(step.outputs, result.output_shapes, strict=False):
            if index not in self._dynamic:
                continue
            self._results[index] = shape.dimensions
            if 0 in shape.dimensions and any(index in later.inputs for later in self._plan.steps):
                raise HalError(
                    ErrorStatus.GENERAL_FAILURE, f"operand {index} is empty and cannot go from one device to another"
                )

    def _shapes_so_far(self, step: Step, error: HalError) -> tuple[Dimensions, ...]:
        """Return what is known of every output's dimensions when a step found one insufficient."""
        reported = dict(zip(step.outputs, error.output_shapes, strict=False))
        shapes = []
        for index, argument in zip(self._plan.model.main.output_indexes, self._outputs, strict=True):
            dims = self._results.get(index, argument.dimensions)
            shapes.append(reported[index].dimensions if index in reported else dims)
        return tuple(shapes)


def _own_pool(dimensions: Dimensions, length: int) -> Argument:
    if length > MAX_SIZE_BYTES:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"a temporary of {length} bytes, at most 2^32-1 are allowed")
    return Argument(dimensions, pool=_new_pool(length), length=length)


def _new_pool(length: int) -> SharedMemory:
    try:
        return SharedMemory.create(length)
    except (OSError, MemoryError) as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"no shared memory of {length} bytes: {error}") from error


def _dimensions_of(result: ExecutionResult, known: tuple[Dimensions, ...]) -> tuple[Dimensions, ...]:
    return tuple(shape.dimensions for shape in result.output_shapes) if result.output_shapes else known


def _fall_back(
    plan: Plan,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    options: RunOptions,
    failure: HalError,
    where: str,
) -> Outcome:
    """Run the whole model on the CPU device after a failure; raises the failure itself where that is not allowed."""
    if plan.reference is None:
        raise error_of_hal(failure, where) from failure
    _log_execution.warning("%s: %s; the whole model goes to %s", where, failure, plan.reference.name)
    try:
        result = _execute_on_host(plan.whole_on_reference(), inputs, outputs, options)
    except HalError as error:
        raise error_of_hal(error, f"execution on {plan.reference.name}") from error
    return Outcome(_dimensions_of(result, tuple(argument.dimensions for argument in outputs)), Timing())


def _execute_on_host(
    step: Step, inputs: Sequence[Argument], outputs: Sequence[Argument], options: RunOptions
) -> ExecutionResult:
    """Run a step on the CPU device, with driver-managed buffers copied before and after; raises HalError."""
    host_inputs = [_copied_to_host(argument, step, at) for at, argument in enumerate(inputs)]
    host_outputs = [_host_output(argument, step, at) for at, argument in enumerate(outputs)]
    result = step.execute(request_of(step.model, host_inputs, host_outputs), options)
    for argument, host in zip(outputs, host_outputs, strict=True):
        buffer = argument.memory.buffer if argument.memory is not None else None
        if host is not argument and buffer is not None and isinstance(host.pool, SharedMemory):
            buffer.copy_from(host.pool, host.dimensions)
    return result


def _copied_to_host(argument: Argument, step: Step, at: int) -> Argument:
    buffer = argument.memory.buffer if argument.memory is not None else None
    if buffer is None:
        return argument
    host = _host_argument(argument, step.model.main.operands[step.model.main.input_indexes[at]].type)
    if isinstance(host.pool, SharedMemory):
        buffer.copy_to(host.pool)
    return host


def _host_output(argument: Argument, step: Step, at: int) -> Argument:
    if argument.memory is None or argument.memory.buffer is None:
        return argument
    return _host_argument(argument, step.model.main.operands[step.model.main.output_indexes[at]].type)


def _host_argument(argument: Argument, code: int) -> Argument:
    if has_unknown_dimensions(code, argument.dimensions):
        raise HalError(
            ErrorStatus.GENERAL_FAILURE, f"device memory of shape {list(argument.dimensions)} cannot go to the CPU"
        )
    length = size_bytes(code, argument.dimensions)
    return Argument(argument.dimensions, pool=_new_pool(length), length=length)

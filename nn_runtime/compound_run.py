# SPDX-License-Identifier: Apache-2.0
"""Runs of a plan of several steps: temporaries between them, control flow, and what happens when one fails.

SURFACE section k. Temporaries of unknown size begin with one element and grow until their step is content.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.errors import NNError, OutputInsufficientSize
from nn_runtime.failures import copied, error_of_hal
from nn_runtime.fallback import execute_on_host, fall_back, fall_back_fenced
from nn_runtime.hal import fences
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.plain import wait_for_fences
from nn_runtime.hal.types import DEFAULT_LOOP_TIMEOUT_NS, BufferToken, ErrorStatus, HalError, Timing
from nn_runtime.operand import dtype_of, has_unknown_dimensions, size_bytes
from nn_runtime.outcome import FencedOutcome, Outcome
from nn_runtime.program import GotoStep, IfStep, WhileStep
from nn_runtime.requests import Argument, request_of
from nn_runtime.step import Step
from nn_runtime.temporaries import buffer_of, host_bytes, new_pool, own_pool, slices
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nn_runtime.hal.interfaces import IFencedExecutionCallback
    from nn_runtime.hal.types import ExecutionResult, OutputShape, Request
    from nn_runtime.operand import Dimensions
    from nn_runtime.plan import Plan
    from nn_runtime.program import ControlStep
    from nn_runtime.requests import OtherMemory
    from nn_runtime.step import RunOptions

_log = logging.getLogger("nn_runtime.execution")

_KEPT_REQUESTS = 3
"""Requests kept for each step: inside a loop the arguments come from outside, or from one of two buffers."""

_MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


@dataclass
class _Loop:
    """Where an interpreted WHILE stands: what its next condition and body read, and since when it runs."""

    values: list[Argument]
    started_ns: int
    iteration: int = 0
    in_condition: bool = True


class CompoundRun:
    """Several steps, with control flow and the temporaries between them.

    Temporaries of known size share one pool. One of unknown size has a pool of its own, which grows when its producer
    reports it insufficient; the producer then runs again.
    """

    def __init__(self, plan: Plan, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> None:
        """Bind the arguments; memory is taken at the first run."""
        main = plan.model.main
        self._plan = plan
        self._inputs = inputs
        self._outputs = outputs
        self._arguments = dict(plan.constants)
        """What each slot stands for now; control flow changes those at the boundaries of its models."""
        self._arguments.update(zip(main.input_indexes, inputs, strict=True))
        self._arguments.update(zip(main.output_indexes, outputs, strict=True))
        omitted = [at for at, argument in enumerate(outputs) if argument.omitted and plan.reads_output(at)]
        self._own_outputs = [main.output_indexes[at] for at in omitted]
        """Slots of omitted outputs that later steps read: they have memory as temporaries have."""
        self._results: dict[int, Dimensions] = {}
        """Dimensions of this run's results of unknown size, by slot."""
        self._dynamic = {slot for step in plan.steps for slot in step.outputs if self._is_dynamic(slot)}
        self._read: dict[int, tuple[Argument, Argument]] = {}
        """Results of unknown size as later steps read them: the argument written, and the same cut to size."""
        self._requests: list[list[tuple[tuple[Argument, ...], Request]]] = [[] for _ in plan.program]
        self._loop_outputs: dict[int, tuple[list[Argument], list[Argument]]] = {}
        """Two sets of memory for the results of each loop's body, by place in the program."""
        self._loops: dict[int, _Loop] = {}
        self._allocated = False

    @property
    def takes_other_memory(self) -> bool:
        """Whether a run can have other memory than the arguments': never, for several requests have that."""
        return False

    def execute(self, options: RunOptions, other: OtherMemory | None = None) -> Outcome:
        """Run every step, or the whole on the CPU device after a failure where that is allowed."""
        try:
            self._begin()
        except HalError as error:
            return self._fall_back(options, error, "execution")
        program = self._plan.program
        at, end = 0, len(program)
        while at < end:
            step = program[at]
            try:
                if isinstance(step, Step):
                    self._execute_step(at, step, options)
                    at += 1
                else:
                    at = self._control(at, step, options)
            except HalError as error:
                where = self._where(at)
                if not isinstance(step, Step) and error.status in _MISSED:
                    raise error_of_hal(error, where) from error
                if error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE and isinstance(step, Step):
                    raise OutputInsufficientSize(f"{where}: {error}", self._shapes_so_far(step, error)) from error
                return self._fall_back(options, error, where)
        return Outcome(self._output_dimensions(), Timing())

    def execute_fenced(self, options: RunOptions, wait_for: Sequence[int], duration_ns: int | None) -> FencedOutcome:
        """Start every step after the fence of the one before; control flow waits on the spot."""
        fence: int | None = None
        callback: IFencedExecutionCallback | None = None
        program = self._plan.program
        at, end = 0, len(program)
        left = wait_for
        try:
            self._begin()
            while at < end:
                step = program[at]
                waits = left if fence is None else (fence,)
                if not isinstance(step, Step):
                    wait_for_fences(waits, options.deadline_ns)
                    at, left = self._control(at, step, options), ()
                    continue
                started, callback = step.execute_fenced(self._request(at, step), waits, options, duration_ns)
                before, fence, left = fence, started, ()
                if before is not None:
                    fences.close(before)
                at += 1
        except HalError as error:
            _end(fence)
            where = self._where(at)
            if at < end and not isinstance(program[at], Step) and error.status in _MISSED:
                raise error_of_hal(error, where) from error
            return fall_back_fenced(self._plan, self._inputs, self._outputs, options, error, where, wait_for)
        except BaseException:  # of a signal's handler
            _end(fence)
            raise
        return FencedOutcome(self._output_dimensions(), fence, callback)

    def _begin(self) -> None:
        self._results = {}
        self._loops.clear()
        if not self._allocated:
            self._allocate()
            self._allocated = True

    def _where(self, at: int) -> str:
        step = self._plan.program[at] if at < len(self._plan.program) else None
        return f"execution on {step.device.name}, step {at}" if isinstance(step, Step) else f"execution, step {at}"

    def _output_dimensions(self) -> tuple[Dimensions, ...]:
        known = zip(self._plan.model.main.output_indexes, self._outputs, strict=True)
        return tuple(self._results.get(slot, argument.dimensions) for slot, argument in known)

    def _fall_back(self, options: RunOptions, error: HalError, where: str) -> Outcome:
        return fall_back(self._plan, self._inputs, self._outputs, options, error, where)

    def _control(self, at: int, step: ControlStep, options: RunOptions) -> int:
        """Do a step of the control flow and return the next step; raises HalError."""
        if isinstance(step, GotoStep):
            return step.target
        try:
            return self._if(step) if isinstance(step, IfStep) else self._while(at, step, options)
        except NNError as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"step {at}: {error}") from error

    def _if(self, step: IfStep) -> int:
        holds = self._truth(step.condition)
        inner = step.then_inputs, step.then_outputs
        inputs, outputs = inner if holds else (step.else_inputs, step.else_outputs)
        self._rebind(inputs, [self._arguments[slot] for slot in step.outer_inputs])
        self._rebind(outputs, [self._arguments[slot] for slot in step.outer_outputs])
        return step.then_at if holds else step.else_at

    def _while(self, at: int, step: WhileStep, options: RunOptions) -> int:
        """Enter the loop, or go on in it: after a condition to the body or the exit, after a body to the condition."""
        loop = self._loops.get(at)
        if loop is None:
            outer = [self._arguments[slot] for slot in step.outer_inputs]
            loop = self._loops[at] = _Loop(outer, time.monotonic_ns())
        elif loop.in_condition:
            self._check_loop(step, loop, options)
            if not self._truth(step.condition_output):
                for slot, value in zip(step.outer_outputs, loop.values, strict=False):
                    self._copy(value, self._arguments[slot], self._plan.operands[slot].type)
                del self._loops[at]
                return step.exit_at
            loop.in_condition = False
            self._rebind(step.body_inputs, loop.values)
            self._rebind(step.body_outputs, self._loop_outputs[at][loop.iteration % 2])
            return step.body_at
        else:
            loop.values[: len(step.body_outputs)] = self._loop_outputs[at][loop.iteration % 2]
            loop.iteration += 1
            loop.in_condition = True
        self._rebind(step.condition_inputs, loop.values)
        return step.condition_at

    def _check_loop(self, step: WhileStep, loop: _Loop, options: RunOptions) -> None:
        now = time.monotonic_ns()
        timeout_ns = DEFAULT_LOOP_TIMEOUT_NS if options.loop_timeout_ns is None else options.loop_timeout_ns
        if now - loop.started_ns > timeout_ns:
            message = f"{step.name}: the loop timed out after {loop.iteration} iterations"
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, message)
        if options.deadline_ns is not None and now >= options.deadline_ns:
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, f"{step.name}: the deadline passed")

    def _rebind(self, slots: Iterable[int], arguments: Iterable[Argument]) -> None:
        self._arguments.update(zip(slots, arguments, strict=True))

    def _truth(self, slot: int) -> bool:
        """Read a TENSOR_BOOL8 [1]."""
        return bool(host_bytes(self._arguments[slot], self._plan.operands[slot].type)[0])

    def _copy(self, source: Argument, target: Argument, code: int) -> None:
        """Copy the result of a loop to where it is wanted."""
        if target.omitted:
            return
        data = host_bytes(source, code)
        if isinstance(target.pool, BufferToken):
            host = new_pool(data.nbytes)
            host.array()[:] = data
            buffer = buffer_of(target)
            copied(lambda: buffer.copy_from(host, source.dimensions), "copy_from")
        else:
            host_bytes(target, code)[: data.nbytes] = data

    def _execute_step(self, number: int, step: Step, options: RunOptions) -> None:
        """Run one step, on the CPU device if its own fails and that is allowed; raises HalError."""
        reference = self._plan.reference
        try:
            result = self._until_large_enough(number, step, options, on_host=False)
        except HalError as error:
            if error.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or reference is None or step.device.is_reference:
                raise
            _log.warning("step %d on %s failed: %s; it goes to %s", number, step.device.name, error, reference.name)
            other = step.on_reference(reference, self._plan.options)
            result = self._until_large_enough(number, other, options, on_host=True)
        if self._dynamic:
            self._take_results(step, result)

    def _until_large_enough(self, number: int, step: Step, options: RunOptions, on_host: bool) -> ExecutionResult:
        while True:
            try:
                if on_host:
                    return execute_on_host(step, *self._step_arguments(step), options)
                return step.execute(self._request(number, step), options)
            except HalError as error:
                if error.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or not self._grow(step, error.output_shapes):
                    raise

    def _request(self, number: int, step: Step) -> Request:
        """Return the step's request: one of those before where the arguments are the same."""
        inputs, outputs = self._step_arguments(step)
        arguments = (*inputs, *outputs)
        kept = self._requests[number]
        for before, request in kept:
            if all(a is b for a, b in zip(before, arguments, strict=True)):
                return request
        request = request_of(step.model, inputs, outputs)
        kept.insert(0, (arguments, request))
        del kept[_KEPT_REQUESTS:]
        return request

    def _step_arguments(self, step: Step) -> tuple[list[Argument], list[Argument]]:
        inputs = [self._as_input(slot) if slot in self._results else self._arguments[slot] for slot in step.inputs]
        return inputs, [self._arguments[slot] for slot in step.outputs]

    def _as_input(self, slot: int) -> Argument:
        """Return a result of unknown size as an input of a later step: cut to the size it turned out to have."""
        argument, dims = self._arguments[slot], self._results[slot]
        length = size_bytes(self._plan.operands[slot].type, dims)
        kept = self._read.get(slot)
        if kept is not None and kept[0] is argument and kept[1].dimensions == dims:
            return kept[1]
        if argument.pointer is not None:
            flat = argument.pointer.reshape(-1).view("u1")
            cut_to_size = replace(argument, dimensions=dims, pointer=flat[:length], length=length)
        elif isinstance(argument.pool, SharedMemory):
            cut_to_size = replace(argument, dimensions=dims, length=length)
        else:
            cut_to_size = replace(argument, dimensions=dims)
        self._read[slot] = (argument, cut_to_size)
        return cut_to_size

    def _is_dynamic(self, slot: int) -> bool:
        operand = self._plan.operands[slot]
        argument = self._arguments.get(slot)
        dims = operand.dimensions if argument is None else argument.dimensions
        return has_unknown_dimensions(operand.type, dims)

    def _allocate(self) -> None:
        """Give every temporary between steps its memory: page-aligned slices of one pool, or a pool of its own."""
        operands = self._plan.operands
        static = [slot for slot in self._plan.temporaries if slot not in self._dynamic]
        loops = [(at, step) for at, step in enumerate(self._plan.program) if isinstance(step, WhileStep)]
        in_loops = [slot for _, step in loops for slot in (*step.body_outputs, *step.body_outputs)]
        places = iter(slices([operands[slot] for slot in (*static, *in_loops)]))
        self._arguments.update(zip(static, places, strict=False))
        for at, step in loops:
            first, second = ([next(places) for _ in step.body_outputs] for _ in range(2))
            self._loop_outputs[at] = first, second
        for slot in self._dynamic.difference(self._arguments):
            self._arguments[slot] = own_pool(operands[slot].dimensions, dtype_of(operands[slot].type).itemsize)
        for slot in self._own_outputs:
            code, dims = operands[slot].type, self._arguments[slot].dimensions
            length = dtype_of(code).itemsize if slot in self._dynamic else size_bytes(code, dims)
            self._arguments[slot] = own_pool(dims, length)

    def _grow(self, step: Step, shapes: Sequence[OutputShape]) -> bool:
        """Enlarge the insufficient temporaries of a step; False if an output that is bound is among them."""
        short = [(i, shape) for i, shape in zip(step.outputs, shapes, strict=True) if not shape.is_sufficient]
        operands = self._plan.operands
        bound = set(self._plan.model.main.output_indexes).difference(self._own_outputs)
        if any(slot in bound or slot not in self._dynamic for slot, _ in short):
            return False
        for slot, shape in short:
            before = self._arguments[slot]
            reported = size_bytes(operands[slot].type, shape.dimensions)
            self._arguments[slot] = own_pool(before.dimensions, max(reported, 2 * before.length))
        return True

    def _take_results(self, step: Step, result: ExecutionResult) -> None:
        """Note the dimensions of results of unknown size; an empty temporary cannot cross between steps."""
        for slot, shape in zip(step.outputs, result.output_shapes, strict=False):
            if slot not in self._dynamic:
                continue
            self._results[slot] = shape.dimensions
            if 0 in shape.dimensions and any(slot in later.inputs for later in self._plan.steps):
                raise HalError(
                    ErrorStatus.GENERAL_FAILURE, f"operand {slot} is empty and cannot go from one device to another"
                )

    def _shapes_so_far(self, step: Step, error: HalError) -> tuple[Dimensions, ...]:
        """Return what is known of every output's dimensions when a step found one insufficient."""
        reported = dict(zip(step.outputs, error.output_shapes, strict=False))
        shapes = []
        for slot, argument in zip(self._plan.model.main.output_indexes, self._outputs, strict=True):
            dims = self._results.get(slot, argument.dimensions)
            shapes.append(reported[slot].dimensions if slot in reported else dims)
        return tuple(shapes)


def _end(fence: int | None) -> None:
    """Wait until the step that was started last has ended, if any, and close its fence."""
    if fence is None:
        return
    try:
        fences.wait(fence)
    finally:
        fences.close(fence)

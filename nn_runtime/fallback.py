# SPDX-License-Identifier: Apache-2.0
"""How the CPU device takes over when a run fails (SURFACE section k, execution failures)."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from nn_runtime.failures import copied, error_of_hal
from nn_runtime.hal.memory import SharedMemory
from nn_runtime.hal.plain import wait_for_fences
from nn_runtime.hal.types import ErrorStatus, HalError, Timing
from nn_runtime.operand import has_unknown_dimensions, size_bytes
from nn_runtime.outcome import FencedOutcome, Outcome, dimensions_of
from nn_runtime.requests import Argument, request_of
from nn_runtime.temporaries import new_pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.types import ExecutionResult
    from nn_runtime.plan import Plan
    from nn_runtime.step import RunOptions, Step

_log = logging.getLogger("nn_runtime.execution")


def fall_back(
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
    _log.warning("%s: %s; the whole model goes to %s", where, failure, plan.reference.name)
    try:
        result = execute_on_host(plan.whole_on_reference(), inputs, outputs, options)
    except HalError as error:
        raise error_of_hal(error, f"execution on {plan.reference.name}") from error
    return Outcome(dimensions_of(result, tuple(argument.dimensions for argument in outputs)), Timing())


def fall_back_fenced(
    plan: Plan,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    options: RunOptions,
    failure: HalError,
    where: str,
    wait_for: Sequence[int],
) -> FencedOutcome:
    """Wait for the fences and run the whole model on the CPU device; raises the failure where that is not allowed."""
    if plan.reference is None:
        raise error_of_hal(failure, where) from failure
    try:
        wait_for_fences(wait_for, options.deadline_ns)
    except HalError as error:
        raise error_of_hal(error, where) from error
    return FencedOutcome(fall_back(plan, inputs, outputs, options, failure, where).dimensions, None, None)


def execute_on_host(
    step: Step, inputs: Sequence[Argument], outputs: Sequence[Argument], options: RunOptions
) -> ExecutionResult:
    """Run a step on the CPU device, with driver-managed buffers copied before and after; raises HalError."""
    host_inputs = [_copied_to_host(argument, step, at) for at, argument in enumerate(inputs)]
    host_outputs = [_host_output(argument, step, at) for at, argument in enumerate(outputs)]
    result = step.execute(request_of(step.model, host_inputs, host_outputs), options)
    for argument, host in zip(outputs, host_outputs, strict=True):
        if argument.buffer is not None and isinstance(host.pool, SharedMemory):
            copied(functools.partial(argument.buffer.copy_from, host.pool, host.dimensions), "copy_from")
    return result


def _copied_to_host(argument: Argument, step: Step, at: int) -> Argument:
    buffer = argument.buffer
    if buffer is None:
        return argument
    host = _host_argument(argument, step.model.main.operands[step.model.main.input_indexes[at]].type)
    pool = host.pool
    if isinstance(pool, SharedMemory):
        copied(lambda: buffer.copy_to(pool), "copy_to")
    return host


def _host_output(argument: Argument, step: Step, at: int) -> Argument:
    if argument.buffer is None:
        return argument
    return _host_argument(argument, step.model.main.operands[step.model.main.output_indexes[at]].type)


def _host_argument(argument: Argument, code: int) -> Argument:
    if has_unknown_dimensions(code, argument.dimensions):
        raise HalError(
            ErrorStatus.GENERAL_FAILURE, f"device memory of shape {list(argument.dimensions)} cannot go to the CPU"
        )
    length = size_bytes(code, argument.dimensions)
    return Argument(argument.dimensions, pool=new_pool(length), length=length)

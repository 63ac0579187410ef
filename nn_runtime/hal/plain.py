# SPDX-License-Identifier: Apache-2.0
"""Plain forms of the HAL's execution variants, for drivers that have nothing better.

Fences waited for on the spot or in a thread, bursts that execute as usual, times of a fenced execution that is already
over.
"""

from __future__ import annotations

import _thread
import time
from typing import TYPE_CHECKING

from nn_runtime.errors import BadData, ResourceExhausted, forget_frames
from nn_runtime.hal import fences
from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.types import UNKNOWN_DURATION, ErrorStatus, HalError, Timing
from nn_runtime.operand import has_unknown_dimensions, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.interfaces import IPreparedModel
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import ExecutionResult, Operand, Request


def wait_for_fences(wait_for: Sequence[int], deadline_ns: int | None) -> None:
    """Wait until all sync fences have signalled.

    Raises HalError: INVALID_ARGUMENT for an empty fence, GENERAL_FAILURE for one that signals an error,
    MISSED_DEADLINE_TRANSIENT at the deadline.
    """
    if any(fence < 0 for fence in wait_for):
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "a fence to wait for is empty")
    for fence in wait_for:
        status = fences.wait(fence, fences.seconds_until(deadline_ns))
        if status == fences.FenceStatus.PENDING:
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the deadline passed before the fences signalled")
        if status == fences.FenceStatus.FAILED:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "a fence that was waited for signalled an error")


def check_sizes_known(outputs: Sequence[Operand], request: Request) -> None:
    """Raise HalError(INVALID_ARGUMENT) where a fenced execution would find out the size of one of a model's outputs."""
    for index, (operand, argument) in enumerate(zip(outputs, request.outputs, strict=False)):
        try:
            dims = merge_dimensions(operand.dimensions, argument.dimensions)
        except BadData as error:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"output {index}: {error}") from error
        if not argument.has_no_value and has_unknown_dimensions(operand.type, dims):
            message = f"output {index}: a fenced execution needs its size, got {list(dims)}"
            raise HalError(ErrorStatus.INVALID_ARGUMENT, message)


def earlier_deadline(deadline_ns: int | None, duration_ns: int | None) -> int | None:
    """Return the earlier of a deadline and `duration_ns` from now."""
    if duration_ns is None:
        return deadline_ns
    after = time.monotonic_ns() + duration_ns
    return after if deadline_ns is None else min(deadline_ns, after)


class FinishedFencedExecution:
    """Times of a fenced execution that ended before its call returned (IFencedExecutionCallback)."""

    def __init__(self, launched: Timing, fenced: Timing) -> None:
        """Keep the times since the launch and since the waited fences signalled."""
        self._times = launched, fenced

    def get_execution_info(self) -> tuple[Timing, Timing]:
        """Return both times."""
        return self._times


class RunningFencedExecution:
    """Times and outcome of a fenced execution in a thread (IFencedExecutionCallback)."""

    def __init__(self) -> None:
        """Start unfinished."""
        self.outcome: tuple[Timing, Timing] | HalError = HalError(
            ErrorStatus.GENERAL_FAILURE, "the fence has not signalled yet"
        )

    def get_execution_info(self) -> tuple[Timing, Timing]:
        """Return the times since launch and since the fences; raises the error of the execution."""
        if isinstance(self.outcome, HalError):
            raise self.outcome
        return self.outcome


def execute_after_fences(
    name: str,
    wait_for: Sequence[int],
    deadline_ns: int | None,
    duration_ns: int | None,
    execute: Callable[[int | None], tuple[Timing, Timing]],
) -> tuple[int, RunningFencedExecution]:
    """Execute in a thread as soon as all fences have signalled; return the fence that the thread signals at its end.

    `name`: of the thread, for messages. `duration_ns`: longest time of the execution itself. `execute` gets the
    deadline, and returns the times since launch and since the fences, as `timing_since_launch` makes the first of the
    second. Raises HalError: INVALID_ARGUMENT for a fence that is empty or not open, RESOURCE_EXHAUSTED_TRANSIENT where
    no thread or descriptor can be had; what fails later is the outcome's error.
    """
    kept = _duplicates(name, wait_for)
    running = RunningFencedExecution()
    try:
        fence = fences.Fence()
        given_out = fence.duplicate()
    except (OSError, ResourceExhausted) as error:
        _close_all(kept)
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"{name}: no fence: {error}") from error

    def run() -> None:
        try:
            wait_for_fences(kept, deadline_ns)
            running.outcome = execute(earlier_deadline(deadline_ns, duration_ns))
        except HalError as error:
            forget_frames(error)
            running.outcome = error
        except Exception as error:
            running.outcome = HalError(ErrorStatus.GENERAL_FAILURE, f"{type(error).__name__}: {error}")
        _close_all(kept)
        fence.signal(not isinstance(running.outcome, HalError))
        fence.close()

    try:
        _thread.start_new_thread(run, ())  # an interrupt of threading.Thread.start may keep the thread from starting
    except RuntimeError as error:  # no thread can be had
        fence.close()
        _close_all((*kept, given_out))
        pass_interrupt(error)
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"{name}: {error}") from error
    except BaseException:  # an interrupt: the thread may run, and closes what is its own
        fences.close(given_out)
        raise
    return given_out, running


def _duplicates(name: str, wait_for: Sequence[int]) -> list[int]:
    """Return descriptors of our own for fences; raises HalError, and then leaves none open."""
    if any(fence < 0 for fence in wait_for):
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{name}: a fence to wait for is empty")
    kept: list[int] = []
    try:
        for fence in wait_for:
            kept.append(fences.duplicate(fence))
    except (BadData, ResourceExhausted) as error:
        _close_all(kept)
        is_bad = isinstance(error, BadData)
        status = ErrorStatus.INVALID_ARGUMENT if is_bad else ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        raise HalError(status, f"{name}: {error}") from error
    return kept


def _close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        fences.close(fd)


def timing_since_launch(since_fences: Timing, launched_ns: int, ended_ns: int) -> Timing:
    """Return the times of a fenced execution with the wait for its fences, in any one clock; unknown ones stay so."""
    if since_fences.time_in_driver_ns == UNKNOWN_DURATION:
        return since_fences
    in_driver_ns = max(ended_ns - launched_ns, since_fences.time_in_driver_ns)
    return Timing(since_fences.time_on_device_ns, in_driver_ns)


class PlainBurst:
    """A burst that executes as usual and keeps nothing between requests (IBurstContext)."""

    def __init__(self, prepared: IPreparedModel) -> None:
        """Keep the prepared model."""
        self._prepared = prepared

    def execute(
        self, request: Request, measure: bool, deadline_ns: int | None, loop_timeout_ns: int | None
    ) -> ExecutionResult:
        """Execute one request."""
        return self._prepared.execute_synchronously(request, measure, deadline_ns, loop_timeout_ns)

    def free_memory(self, memory: SharedMemory) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is held."""

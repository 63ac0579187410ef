# SPDX-License-Identifier: Apache-2.0
"""Plain forms of the HAL's execution variants, for drivers that have nothing better: fences waited for on the spot,

bursts that execute as usual, times of a fenced execution that is already over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nn_runtime.hal import fences
from nn_runtime.hal.types import ErrorStatus, HalError, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import IPreparedModel
    from nn_runtime.hal.memory import SharedMemory
    from nn_runtime.hal.types import ExecutionResult, Request


def wait_for_fences(wait_for: Sequence[int], deadline_ns: int | None) -> None:
    """Wait until all sync fences have signalled; raises HalError: INVALID_ARGUMENT for an empty fence,

    GENERAL_FAILURE for one that signals an error, MISSED_DEADLINE_TRANSIENT at the deadline.
    """
    if any(fence < 0 for fence in wait_for):
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "a fence to wait for is empty")
    for fence in wait_for:
        status = fences.wait(fence, fences.seconds_until(deadline_ns))
        if status == fences.FenceStatus.PENDING:
            raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "the deadline passed before the fences signalled")
        if status == fences.FenceStatus.FAILED:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "a fence that was waited for signalled an error")


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

# SPDX-License-Identifier: Apache-2.0
"""How runs of a plan end: with the dimensions of the outputs, and times (SURFACE section f)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import DurationCode
from nn_runtime.errors import BadState, NNError, OperationFailed
from nn_runtime.failures import error_of_hal, passed_hal
from nn_runtime.hal.types import UNKNOWN_DURATION, HalError, Timing
from nn_runtime.replies import fenced_times
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.hal.interfaces import IFencedExecutionCallback
    from nn_runtime.hal.types import ExecutionResult
    from nn_runtime.operand import Dimensions


@dataclass(frozen=True)
class Outcome:
    """A successful run: dimensions of every output, and times (unknown for several steps)."""

    dimensions: tuple[Dimensions, ...]
    timing: Timing

    def times(self) -> tuple[Timing, Timing]:
        """Return the times since the launch and since the fences: there were none."""
        return self.timing, self.timing


@dataclass(frozen=True)
class FencedOutcome:
    """A fenced run that has been started: its fence, owned by the receiver; None if all is done.

    `callback` tells the times, and whether it failed; None where there is none, and the times are not known.
    """

    dimensions: tuple[Dimensions, ...]
    fence: int | None
    callback: IFencedExecutionCallback | None

    def times(self) -> tuple[Timing, Timing]:
        """Return the times since the launch and since the fences; raises BadState if the driver does not tell."""
        if self.callback is None:
            return Timing(), Timing()
        try:
            return fenced_times(self.callback)
        except HalError as error:
            raise BadState(f"get_duration: {error}") from error

    def failure(self) -> NNError:
        """Return the error behind a fence that signalled one, which the callback knows."""
        if self.callback is not None:
            try:
                fenced_times(self.callback)
            except HalError as error:
                return passed_hal(error_of_hal(error, "fenced execution"))
        return OperationFailed("fenced execution: its sync fence signalled an error")


def dimensions_of(result: ExecutionResult, known: tuple[Dimensions, ...]) -> tuple[Dimensions, ...]:
    """Return the dimensions of every output: those reported, else those known before."""
    return tuple(shape.dimensions for shape in result.output_shapes) if result.output_shapes else known


def duration_ns(times: tuple[Timing, Timing], code: int) -> int | None:
    """Return what a DurationCode asks of the times since the launch and since the fences; None if unknown."""
    launched, fenced = times
    timing = fenced if code in (DurationCode.FENCED_ON_HARDWARE, DurationCode.FENCED_IN_DRIVER) else launched
    on_hardware = code in (DurationCode.ON_HARDWARE, DurationCode.FENCED_ON_HARDWARE)
    duration = timing.time_on_device_ns if on_hardware else timing.time_in_driver_ns
    return None if duration == UNKNOWN_DURATION else duration

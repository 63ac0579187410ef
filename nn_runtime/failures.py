# SPDX-License-Identifier: Apache-2.0
"""How failures of drivers become errors of the NDK level (SURFACE section c).

Whatever a driver raises besides HalError and MemoryError, and whatever it answers that is no answer, is its
GENERAL_FAILURE.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from nn_runtime.checks import shown
from nn_runtime.errors import NNError, error_of
from nn_runtime.hal.interrupts import pass_interrupt
from nn_runtime.hal.types import RESULT_OF_STATUS, STATUS_OF_RESULT, ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
S = TypeVar("S")

_log = logging.getLogger("nn_runtime.driver")


def error_of_hal(error: HalError, where: str) -> NNError:
    """Return the NDK's error for a driver's one."""
    shapes = tuple(shape.dimensions for shape in error.output_shapes)
    code = RESULT_OF_STATUS.get(error.status, RESULT_OF_STATUS[ErrorStatus.GENERAL_FAILURE])
    return error_of(code, f"{where}: {error}", shapes)


def passed_hal(error: NNError) -> NNError:
    """Return an error as it is after a way through the HAL's status and back."""
    code = RESULT_OF_STATUS[STATUS_OF_RESULT[error.code]]
    return error if code == error.code else error_of(code, str(error))


def guarded(call: Callable[[], R], what: str) -> R:
    """Call a driver; its foreign exceptions become HalError(GENERAL_FAILURE), which says `what` was called."""
    try:
        return call()
    except HalError:
        raise
    except Exception as error:
        raise foreign_failure(error, what) from error


def copied(call: Callable[[], object], what: str) -> None:
    """Have a driver copy memory of its own; raises HalError, never one of insufficient size, which executions have."""
    try:
        guarded(call, what)
    except HalError as error:
        if error.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
            raise
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{what}: {error.message}") from error


def foreign_failure(error: Exception, what: str) -> HalError:
    """Return what a driver's foreign exception is to the runtime: GENERAL_FAILURE, unless memory was missing.

    Raises the error itself where it is none of the driver's, but of a signal's handler.
    """
    pass_interrupt(error)
    status = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT if isinstance(error, MemoryError) else ErrorStatus.GENERAL_FAILURE
    return HalError(status, f"{what}: the driver failed with {type(error).__name__}: {error}")


def attempt(call: Callable[[], object], what: str) -> None:
    """Call a driver for what must go on if it fails, such as closing: its failure is logged."""
    answered(call, None, what)


def answered(call: Callable[[], R], default: R, what: str) -> R:
    """Return what a driver answers to a query that it may leave open: the default if it fails, which is logged."""
    try:
        return call()
    except HalError as error:
        _log.warning("%s: %s", what, error)
    except Exception as error:
        _log.warning("%s", foreign_failure(error, what))
    return default


def two_of(call: Callable[[], tuple[R, S]], what: str) -> tuple[R, S]:
    """Call a driver for two values; raises HalError, GENERAL_FAILURE where it replies something else."""
    reply = guarded(call, what)
    if not isinstance(reply, tuple) or len(reply) != 2:
        message = f"{what}: wanted two values from the driver, got {shown(reply)}"
        raise HalError(ErrorStatus.GENERAL_FAILURE, message)
    return reply

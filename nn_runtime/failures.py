# SPDX-License-Identifier: Apache-2.0
"""How failures of drivers become errors of the NDK level (SURFACE section c)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from nn_runtime.errors import NNError, OutputInsufficientSize, error_of
from nn_runtime.hal.types import RESULT_OF_STATUS, STATUS_OF_RESULT, ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


def error_of_hal(error: HalError, where: str) -> NNError:
    """Return the NDK's error for a driver's one."""
    shapes = tuple(shape.dimensions for shape in error.output_shapes)
    code = RESULT_OF_STATUS.get(error.status, RESULT_OF_STATUS[ErrorStatus.GENERAL_FAILURE])
    return error_of(code, f"{where}: {error}", shapes)


def passed_hal(error: NNError) -> NNError:
    """Return an error as it is after a way through the HAL's status and back."""
    code = RESULT_OF_STATUS[STATUS_OF_RESULT[error.code]]
    shapes = error.shapes if isinstance(error, OutputInsufficientSize) else ()
    return error if code == error.code else error_of(code, str(error), shapes)


def guarded(call: Callable[[], R]) -> R:
    """Call a driver; its foreign exceptions become HalError(GENERAL_FAILURE)."""
    try:
        return call()
    except HalError:
        raise
    except Exception as error:
        raise foreign_failure(error) from error


def foreign_failure(error: Exception) -> HalError:
    """Return what a driver's foreign exception is to the runtime: GENERAL_FAILURE."""
    return HalError(ErrorStatus.GENERAL_FAILURE, f"the driver failed with {type(error).__name__}: {error}")

# SPDX-License-Identifier: Apache-2.0
"""How executions share a device: each in a slot of its own, once more alone where it had no room beside others."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, TypeVar

import pyopencl as cl

from gpu_driver.device.errors import hal_error, lacks_room
from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVarTuple, Unpack

    from gpu_driver.device.scheduler import Slot
    from gpu_driver.execution.recorded import Recorded

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")


def in_turn(
    slot: Slot,
    events: list[Recorded] | None,
    execute: Callable[[Unpack[Arguments]], Result],
    *arguments: Unpack[Arguments],
) -> Result:
    """Execute in a slot, or a second time with all of them; raises HalError.

    When `execute` fails, its frames hold no memory of the device any more, whoever keeps the error. `events`, where
    they are given, are those of the latest call alone.
    """
    try:
        try:
            with slot:
                return execute(*arguments)
        except BaseException as error:
            slot.abandon()
            _forget_locals(error)
            if not (slot.was_shared and lacks_room(error)):
                raise
        if events is not None:
            events.clear()
        alone = slot.alone()
        try:
            with alone:
                return execute(*arguments)
        except BaseException as error:
            alone.abandon()
            _forget_locals(error)
            raise
    except cl.Error as error:
        raise hal_error(error, "execution") from error


def _forget_locals(error: BaseException) -> None:
    """Clear the frames that an error has left, and those of what caused it."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__


def check_deadline(deadline_ns: int | None) -> None:
    """Raise HalError(MISSED_DEADLINE_PERSISTENT) for a deadline that has passed."""
    if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
        raise HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, "the deadline passed before the execution")

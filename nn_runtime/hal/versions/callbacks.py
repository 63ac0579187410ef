# SPDX-License-Identifier: Apache-2.0
"""The client's ends of the callback protocols: each is notified exactly once, and waited for.

Later notifications than the first are ignored and logged. The death of a service counts as a notification, so that
nobody waits for ever.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from nn_runtime.hal.types import ErrorStatus, HalError
from nn_runtime.hal.versions import v1_2
from nn_runtime.hal.versions.conversion import canonical_status, canonical_timing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nn_runtime.hal.types import OutputShape, Timing
    from nn_runtime.hal.versions import v1_0

T = TypeVar("T")

_log = logging.getLogger("nn_runtime.driver")


class ServiceDied(Exception):
    """Raised by a driver's proxy where the service behind it is dead: becomes DEAD_OBJECT."""


class OnceCallback(Generic[T]):
    """Takes one result and lets others wait for it."""

    def __init__(self) -> None:
        """Start without a result."""
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._result: T | None = None
        self._error: HalError | None = None

    def wait(self) -> T:
        """Return the result when there is one; raises the HalError that came instead."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported success without a result")
        return self._result

    def notify_as_dead(self) -> None:
        """Wake those who wait: the service died."""
        self._set(None, HalError(ErrorStatus.DEAD_OBJECT, "the service behind the driver died"), quiet=True)

    def fail(self, error: HalError) -> None:
        """Give an error instead of a result, unless there is one already."""
        self._set(None, error, quiet=True)

    def _set(self, result: T | None, error: HalError | None, quiet: bool = False) -> None:
        with self._lock:
            if self._done.is_set():
                if not quiet:
                    _log.warning("a driver notified a callback twice; the first time counts")
                return
            self._result, self._error = result, error
            self._done.set()


class PreparedModelCallback(OnceCallback["v1_0.IPreparedModel"]):
    """Waits for a preparation (IPreparedModelCallback of every version)."""

    def notify(self, status: int, prepared: v1_0.IPreparedModel | None) -> None:
        """Take the result."""
        found = canonical_status(status)
        error = None
        if found != ErrorStatus.NONE:
            error = HalError(found, f"the preparation failed with {found.name}")
        elif prepared is None:
            error = HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported success without a prepared model")
        self._set(prepared, error)

    def notify_1_2(self, status: int, prepared: v1_0.IPreparedModel | None) -> None:
        """Take the result."""
        self.notify(status, prepared)

    def notify_1_3(self, status: int, prepared: v1_0.IPreparedModel | None) -> None:
        """Take the result."""
        self.notify(status, prepared)


class ExecutionCallback(OnceCallback[tuple["tuple[OutputShape, ...]", "Timing"]]):
    """Waits for an execution (IExecutionCallback of every version)."""

    def notify(self, status: int) -> None:
        """Take a status: shapes and timing are not known."""
        self.notify_1_2(status, (), v1_2.Timing())

    def notify_1_2(self, status: int, output_shapes: Sequence[OutputShape], timing: v1_2.Timing) -> None:
        """Take the results."""
        try:
            self._set(checked_reply(status, output_shapes, timing), None)
        except HalError as error:
            self._set(None, error)

    def notify_1_3(self, status: int, output_shapes: Sequence[OutputShape], timing: v1_2.Timing) -> None:
        """Take the results."""
        self.notify_1_2(status, output_shapes, timing)


def checked_reply(
    status: int, output_shapes: Sequence[OutputShape], timing: v1_2.Timing
) -> tuple[tuple[OutputShape, ...], Timing]:
    """Return what a driver replied, or raise its HalError: shapes only with insufficient size, timing with none."""
    found = canonical_status(status)
    if found == ErrorStatus.NONE:
        return tuple(output_shapes), canonical_timing(timing)
    shapes = tuple(output_shapes) if found == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE else ()
    raise HalError(found, f"the execution failed with {found.name}", shapes)


def guarded(call: Callable[[], T], what: str) -> T:
    """Call a driver; its exceptions become HalError: DEAD_OBJECT for a dead service, else GENERAL_FAILURE."""
    try:
        return call()
    except HalError:
        raise
    except ServiceDied as error:
        raise HalError(ErrorStatus.DEAD_OBJECT, f"{what}: the service behind the driver died") from error
    except Exception as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{what}: {type(error).__name__}: {error}") from error


def checked(status: int, what: str) -> None:
    """Raise HalError unless a driver's status is NONE."""
    found = canonical_status(status)
    if found != ErrorStatus.NONE:
        raise HalError(found, f"{what} failed with {found.name}")

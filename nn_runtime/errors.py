# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the NDK level.

Every failure is an `NNError` that carries its `ResultCode`; each leaf also derives from the fitting built-in:

    NNError
      UnexpectedNull (TypeError)          BadData (ValueError)
      BadState (RuntimeError)             OperationFailed (RuntimeError)
      OutOfMemory (MemoryError)           Unmappable (OSError)
      OutputInsufficientSize (ValueError) UnavailableDevice (RuntimeError)
      MissedDeadline (TimeoutError)       ResourceExhausted (MemoryError)
      DeadObject (ConnectionError)
      ShapesError (also BadData)
      SelectorError: UnmatchedSelector (also UnavailableDevice), MalformedSelector (also BadData)
"""

from __future__ import annotations

import traceback

from nn_runtime.codes import ResultCode


class NNError(Exception):
    """A failed call: `code` is the NDK's result code, the message names what, where, wanted and given."""

    default_code = ResultCode.OP_FAILED

    def __init__(self, message: str, code: ResultCode | None = None) -> None:
        """Keep the message and the result code (the leaf's own one unless given)."""
        super().__init__(message)
        self.code = self.default_code if code is None else code

    def __str__(self) -> str:
        """Return the message alone (OSError leaves would otherwise format their arguments)."""
        return str(self.args[0]) if self.args else ""


class UnexpectedNull(NNError, TypeError):
    """`None` where a value is needed."""

    default_code = ResultCode.UNEXPECTED_NULL


class BadData(NNError, ValueError):
    """An argument, model or request that the specification does not allow."""

    default_code = ResultCode.BAD_DATA


class BadState(NNError, RuntimeError):
    """A call that the object's state does not allow."""

    default_code = ResultCode.BAD_STATE


class OperationFailed(NNError, RuntimeError):
    """Compilation or execution failed."""

    default_code = ResultCode.OP_FAILED


class OutOfMemory(NNError, MemoryError):
    """Memory could not be had."""

    default_code = ResultCode.OUT_OF_MEMORY


class Unmappable(NNError, OSError):
    """A memory object that cannot be mapped."""

    default_code = ResultCode.UNMAPPABLE


class OutputInsufficientSize(NNError, ValueError):
    """An output buffer is too small; `shapes` holds the dimensions of all outputs as far as known."""

    default_code = ResultCode.OUTPUT_INSUFFICIENT_SIZE

    def __init__(self, message: str, shapes: tuple[tuple[int, ...], ...] = ()) -> None:
        """Keep the true shapes, one per model output; 0 stands for a dimension not known."""
        super().__init__(message)
        self.shapes = shapes


class UnavailableDevice(NNError, RuntimeError):
    """The device is not there, or not usable now."""

    default_code = ResultCode.UNAVAILABLE_DEVICE


class MissedDeadline(NNError, TimeoutError):
    """A deadline or a loop timeout passed; the code tells transient from persistent."""

    default_code = ResultCode.MISSED_DEADLINE_TRANSIENT


class ResourceExhausted(NNError, MemoryError):
    """The device lacks resources; the code tells transient from persistent."""

    default_code = ResultCode.RESOURCE_EXHAUSTED_TRANSIENT


class DeadObject(NNError, ConnectionError):
    """The driver process died."""

    default_code = ResultCode.DEAD_OBJECT


class ShapesError(BadData):
    """Shapes given for inputs of a network that do not go with them: `problem` says why, `file` whose network it is."""

    def __init__(self, problem: str, file: str = "") -> None:
        """Keep both, and the message made of them; `file` is empty where there is none."""
        super().__init__(f"{file}: shapes: {problem}" if file else f"shapes: {problem}")
        self.problem = problem
        self.file = file

    def __reduce__(self) -> tuple[type[ShapesError], tuple[str, str]]:
        """Be copied by what it was made of."""
        return type(self), (self.problem, self.file)


class SelectorError(NNError):
    """A choice of devices of which nothing can be made: `problem` says why, `source` where it came from."""

    def __init__(self, source: str, problem: str) -> None:
        """Keep both, and the message made of them."""
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem

    def __reduce__(self) -> tuple[type[SelectorError], tuple[str, str]]:
        """Be copied by what it was made of: an exception of one process shows in another, as pools of them need."""
        return type(self), (self.source, self.problem)


class UnmatchedSelector(SelectorError, UnavailableDevice):
    """A selector that matches no usable device."""

    default_code = ResultCode.UNAVAILABLE_DEVICE


class MalformedSelector(SelectorError, BadData):
    """A selector of wrong syntax."""

    default_code = ResultCode.BAD_DATA


_LEAVES: dict[ResultCode, type[NNError]] = {
    ResultCode.OUT_OF_MEMORY: OutOfMemory,
    ResultCode.UNEXPECTED_NULL: UnexpectedNull,
    ResultCode.BAD_DATA: BadData,
    ResultCode.BAD_STATE: BadState,
    ResultCode.UNMAPPABLE: Unmappable,
    ResultCode.UNAVAILABLE_DEVICE: UnavailableDevice,
    ResultCode.MISSED_DEADLINE_TRANSIENT: MissedDeadline,
    ResultCode.MISSED_DEADLINE_PERSISTENT: MissedDeadline,
    ResultCode.RESOURCE_EXHAUSTED_TRANSIENT: ResourceExhausted,
    ResultCode.RESOURCE_EXHAUSTED_PERSISTENT: ResourceExhausted,
    ResultCode.DEAD_OBJECT: DeadObject,
}


def error_of(code: ResultCode, message: str, shapes: tuple[tuple[int, ...], ...] = ()) -> NNError:
    """Return the leaf that fits a result code; `shapes` matters for OUTPUT_INSUFFICIENT_SIZE alone."""
    if code == ResultCode.OUTPUT_INSUFFICIENT_SIZE:
        return OutputInsufficientSize(message, shapes)
    return _LEAVES.get(code, OperationFailed)(message, code)


def forget_frames(error: BaseException) -> None:
    """Let go of the local variables of the functions that an error and its causes came through, where they have ended.

    They may hold memory of a device for as long as somebody keeps the error; which lines it came through stays told.
    """
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            pending += one.__cause__, one.__context__

# SPDX-License-Identifier: Apache-2.0
"""Checks of what drivers reply to an execution: a reply that breaks the rules is a GENERAL_FAILURE."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, TypeVar

from nn_runtime.errors import BadData
from nn_runtime.failures import two_of
from nn_runtime.hal import fences
from nn_runtime.hal.interfaces import IFencedExecutionCallback
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.types import UNKNOWN_DURATION, ErrorStatus, ExecutionResult, HalError, OutputShape, Timing
from nn_runtime.operand import check_refined, has_unknown_dimensions, is_tensor, merge_dimensions, size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.hal.types import Operand, Request, RequestArgument

R = TypeVar("R")
S = TypeVar("S")


def checked_result(
    outputs: Sequence[Operand],
    result: ExecutionResult,
    request: Request,
    measure: bool,
    known: tuple[OutputShape, ...] | None = None,
) -> ExecutionResult:
    """Return a reply without times that were not asked for; raises HalError where it breaks the rules.

    `outputs`: operands of the model's outputs. `known`: shapes that were returned for this request before.
    """
    of_kind(ExecutionResult, result, "execute")
    shapes, timing = result.output_shapes, result.timing
    if known is None or shapes is not known:
        shapes = _plain(shapes)
        _check_success(outputs, shapes, request)
    if not measure:
        return ExecutionResult(shapes)
    _check_timing(timing, "execute")
    are_known = UNKNOWN_DURATION not in (timing.time_on_device_ns, timing.time_in_driver_ns)
    if are_known and timing.time_on_device_ns > timing.time_in_driver_ns:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver's time on the device exceeds its own: {timing}")
    return result if shapes is result.output_shapes else ExecutionResult(shapes, timing)


def checked_failure(outputs: Sequence[Operand], error: HalError, request: Request) -> HalError:
    """Drop shapes that do not belong to the status; a reply that breaks the rules is a GENERAL_FAILURE."""
    if error.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        return HalError(error.status, error.message)
    try:
        shapes = _plain(error.output_shapes)
        _check_shapes(outputs, shapes, request)
    except HalError as broken:
        return broken
    if all(shape.is_sufficient for shape in shapes):
        return HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported insufficient size but names no output")
    return HalError(error.status, error.message, shapes)


def started_fenced(
    start: Callable[[], tuple[int | None, IFencedExecutionCallback]],
) -> tuple[int | None, IFencedExecutionCallback]:
    """Have a driver start a fenced execution; return its fence (None when done) and the callback. Raises HalError."""
    what = "execute_fenced"
    fence, callback = _of_known_sizes(start, what)
    of_kind(IFencedExecutionCallback, callback, what)
    if fence is None or of_kind(int, fence, f"{what}: the fence") < 0:
        return None, callback
    try:
        fences.check(fence)
    except BadData as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{what}: {error}") from error
    return fence, callback


def fenced_times(callback: IFencedExecutionCallback) -> tuple[Timing, Timing]:
    """Ask for the times of a fenced execution, since launch and since its fences; raises its HalError."""
    what = "get_execution_info"
    times = _of_known_sizes(callback.get_execution_info, what)
    for timing in times:
        _check_timing(timing, what)
    return times


def _of_known_sizes(call: Callable[[], tuple[R, S]], what: str) -> tuple[R, S]:
    """Call a driver about a fenced execution, for two values; raises HalError, never one of insufficient size."""
    try:
        return two_of(call, what)
    except HalError as error:
        if error.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
            raise
        message = f"the driver reported insufficient size, but all sizes were known before: {error.message}"
        raise HalError(ErrorStatus.GENERAL_FAILURE, message) from error


def _check_timing(timing: Timing, what: str) -> None:
    found = of_kind(Timing, timing, what)
    for duration in (found.time_on_device_ns, found.time_in_driver_ns):
        of_kind(int, duration, f"{what}: a time")


def _check_success(outputs: Sequence[Operand], shapes: tuple[OutputShape, ...], request: Request) -> None:
    if shapes:
        _check_shapes(outputs, shapes, request)
        if not all(shape.is_sufficient for shape in shapes):
            raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported success with an insufficient output")
        tensors = (shape for operand, shape in zip(outputs, shapes, strict=True) if is_tensor(operand.type))
        if not all(shape.dimensions for shape in tensors):
            raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported success with a tensor without dimensions")
    elif any(
        not argument.has_no_value
        and has_unknown_dimensions(operand.type, merge_dimensions(operand.dimensions, argument.dimensions))
        for operand, argument in zip(outputs, request.outputs, strict=True)
    ):
        raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver left out the shape of an output that needs one")


def _plain(shapes: Sequence[OutputShape]) -> tuple[OutputShape, ...]:
    """Return shapes as tuples of integers, the same ones where they are; raises HalError for what is no shape."""
    what = "output shapes"
    plain = []
    for shape in of_kind(Sequence, shapes, what):
        dims = of_kind(OutputShape, shape, what).dimensions
        if type(dims) is not tuple or any(type(size) is not int for size in dims):
            sizes = tuple(index(of_kind(SupportsIndex, size, what)) for size in of_kind(Sequence, dims, what))
            shape = OutputShape(sizes, shape.is_sufficient)
        plain.append(shape)
    if type(shapes) is tuple and all(one is other for one, other in zip(plain, shapes, strict=True)):
        return shapes
    return tuple(plain)


def _check_shapes(outputs: Sequence[Operand], shapes: tuple[OutputShape, ...], request: Request) -> None:
    if len(shapes) != len(outputs):
        raise HalError(
            ErrorStatus.GENERAL_FAILURE,
            f"the driver reported {len(shapes)} output shapes of {len(outputs)}",
        )
    for at, (shape, operand, argument) in enumerate(zip(shapes, outputs, request.outputs, strict=True)):
        try:
            check_refined(merge_dimensions(operand.dimensions, argument.dimensions), shape.dimensions)
            _check_room(operand, argument, shape)
        except BadData as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver's shape of output {at}: {error}") from error


def _check_room(operand: Operand, argument: RequestArgument, shape: OutputShape) -> None:
    """Raise BadData for a shape that no tensor has, or that is said to fit where it does not."""
    if any(size < 0 for size in shape.dimensions):
        raise BadData(f"sizes must be >= 0, got {list(shape.dimensions)}")
    if argument.has_no_value or argument.location.length == 0 or not shape.is_sufficient:
        return
    needed = size_bytes(operand.type, shape.dimensions)
    if needed > argument.location.length:
        raise BadData(
            f"{list(shape.dimensions)} are {needed} bytes, said to fit into a buffer of {argument.location.length}"
        )

# SPDX-License-Identifier: Apache-2.0
"""Checks of what drivers reply to an execution: a reply that breaks the rules is a GENERAL_FAILURE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.errors import BadData
from nn_runtime.hal.types import UNKNOWN_DURATION, ErrorStatus, ExecutionResult, HalError
from nn_runtime.operand import has_unknown_dimensions, merge_dimensions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.types import Operand, OutputShape, Request


def checked_result(
    outputs: Sequence[Operand],
    result: ExecutionResult,
    request: Request,
    measure: bool,
    known: tuple[OutputShape, ...] | None = None,
) -> ExecutionResult:
    """Return a reply without times that were not asked for; raises HalError where it breaks the rules.

    `outputs`: operands of the model's outputs. `known`: shapes that passed for this request before.
    """
    shapes, timing = result.output_shapes, result.timing
    if shapes is not known:
        _check_success(outputs, shapes, request)
    if not measure:
        return ExecutionResult(shapes)
    are_known = UNKNOWN_DURATION not in (timing.time_on_device_ns, timing.time_in_driver_ns)
    if are_known and timing.time_on_device_ns > timing.time_in_driver_ns:
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver's time on the device exceeds its own: {timing}")
    return result


def checked_failure(outputs: Sequence[Operand], error: HalError, request: Request) -> HalError:
    """Drop shapes that do not belong to the status; a reply that breaks the rules is a GENERAL_FAILURE."""
    if error.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        return HalError(error.status, error.message)
    try:
        _check_shapes(outputs, error.output_shapes, request)
    except HalError as broken:
        return broken
    if all(shape.is_sufficient for shape in error.output_shapes):
        return HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported insufficient size but names no output")
    return error


def _check_success(outputs: Sequence[Operand], shapes: tuple[OutputShape, ...], request: Request) -> None:
    if shapes:
        _check_shapes(outputs, shapes, request)
        if not all(shape.is_sufficient for shape in shapes):
            raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver reported success with an insufficient output")
    elif any(
        not argument.has_no_value
        and has_unknown_dimensions(operand.type, merge_dimensions(operand.dimensions, argument.dimensions))
        for operand, argument in zip(outputs, request.outputs, strict=True)
    ):
        raise HalError(ErrorStatus.GENERAL_FAILURE, "the driver left out the shape of an output that needs one")


def _check_shapes(outputs: Sequence[Operand], shapes: tuple[OutputShape, ...], request: Request) -> None:
    if len(shapes) != len(outputs):
        raise HalError(
            ErrorStatus.GENERAL_FAILURE,
            f"the driver reported {len(shapes)} output shapes of {len(outputs)}",
        )
    for at, (shape, operand, argument) in enumerate(zip(shapes, outputs, request.outputs, strict=True)):
        try:
            known = merge_dimensions(operand.dimensions, argument.dimensions)
            merge_dimensions(known, shape.dimensions)
        except BadData as error:
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"the driver's shape of output {at}: {error}") from error

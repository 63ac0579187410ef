# SPDX-License-Identifier: Apache-2.0
"""What failures of drivers become."""

from __future__ import annotations

from typing import NoReturn

import pytest

from nn_runtime.codes import ResultCode
from nn_runtime.errors import DeadObject, OutputInsufficientSize
from nn_runtime.failures import answered, attempt, copied, guarded, passed_hal, two_of
from nn_runtime.hal.kinds import of_kind
from nn_runtime.hal.types import ErrorStatus, HalError, OutputShape


def failing(error: Exception) -> NoReturn:
    raise error


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (HalError(ErrorStatus.DEAD_OBJECT, "gone"), ErrorStatus.DEAD_OBJECT, "gone"),
        (KeyError("x"), ErrorStatus.GENERAL_FAILURE, "execute: the driver failed with KeyError: 'x'"),
        (
            MemoryError("3 GiB"),
            ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
            "execute: the driver failed with MemoryError: 3 GiB",
        ),
    ],
)
def test_what_a_driver_raises(
    error: Exception, status: ErrorStatus, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(HalError) as caught:
        guarded(lambda: failing(error), "execute")
    assert (caught.value.status, caught.value.message) == (status, message)
    assert answered(lambda: failing(error), 7, "execute") == 7
    attempt(lambda: failing(error), "execute")
    assert [record.message for record in caplog.records] == [
        message if message.startswith("execute: ") else f"execute: {message}"
    ] * 2


@pytest.mark.parametrize("status", [ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, ErrorStatus.INVALID_ARGUMENT])
def test_a_copy_has_no_output_of_insufficient_size(status: ErrorStatus) -> None:
    error = HalError(status, "made up", (OutputShape((2,), False),))
    with pytest.raises(HalError) as caught:
        copied(lambda: failing(error), "copy_to")
    if status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        assert (caught.value.status, caught.value.message) == (ErrorStatus.GENERAL_FAILURE, "copy_to: made up")
        assert caught.value.output_shapes == ()
    else:
        assert caught.value is error


def test_errors_on_their_way_through_the_hal() -> None:
    """As of executions that are asynchronous or fenced: DEAD_OBJECT has no status there."""
    short = OutputInsufficientSize("too small", ((2, 3),))
    assert passed_hal(short) is short
    dead = passed_hal(DeadObject("gone"))
    assert (dead.code, str(dead)) == (ResultCode.OP_FAILED, "gone")


def test_replies_that_are_none() -> None:
    assert of_kind(int, 7, "status") == 7
    with pytest.raises(HalError, match="status: wanted an int from the driver, got 'seven'"):
        of_kind(int, "seven", "status")  # type: ignore[type-var]
    assert two_of(lambda: (1, 2), "allocate") == (1, 2)
    for reply in ([1, 2], (1, 2, 3), None):
        with pytest.raises(HalError, match="allocate: wanted two values from the driver, got ") as caught:
            two_of(lambda reply=reply: reply, "allocate")
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE

# SPDX-License-Identifier: Apache-2.0
"""Result codes, their exceptions, and the tables between the HAL's statuses and the NDK's codes (SURFACE c)."""

from __future__ import annotations

import copy
import pickle

import pytest

from nn_runtime.codes import ResultCode
from nn_runtime.errors import (
    MalformedSelector,
    NNError,
    OutputInsufficientSize,
    ShapesError,
    Unmappable,
    UnmatchedSelector,
    error_of,
)
from nn_runtime.failures import error_of_hal
from nn_runtime.hal.types import RESULT_OF_STATUS, STATUS_OF_RESULT, ErrorStatus, HalError, OutputShape


@pytest.mark.parametrize("code", [code for code in ResultCode if code != ResultCode.NO_ERROR])
def test_every_code_has_a_leaf_that_carries_it(code: ResultCode) -> None:
    error = error_of(code, "what, where")
    assert isinstance(error, NNError)
    assert (error.code, str(error)) == (code, "what, where")


def test_leaves_are_also_built_in_exceptions() -> None:
    pairs = {
        ResultCode.BAD_DATA: ValueError,
        ResultCode.UNEXPECTED_NULL: TypeError,
        ResultCode.BAD_STATE: RuntimeError,
        ResultCode.OUT_OF_MEMORY: MemoryError,
        ResultCode.MISSED_DEADLINE_PERSISTENT: TimeoutError,
        ResultCode.UNMAPPABLE: OSError,
        ResultCode.DEAD_OBJECT: ConnectionError,
    }
    for code, built_in in pairs.items():
        assert isinstance(error_of(code, ""), built_in)
    assert str(Unmappable("no map")) == "no map"


@pytest.mark.parametrize(
    "error",
    [
        *(error_of(code, "what, where", ((1, 2),)) for code in ResultCode if code != ResultCode.NO_ERROR),
        MalformedSelector("NNRT_DEVICE", "an item is empty"),
        UnmatchedSelector("device=", "matches no usable device"),
        ShapesError("there is no input 1", "x.tflite"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_go_from_process_to_process(error: NNError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (str(other), other.code, vars(other)) == (str(error), error.code, vars(error))


def test_statuses_and_codes() -> None:
    for status, code in RESULT_OF_STATUS.items():
        if status != ErrorStatus.DEAD_OBJECT:
            assert STATUS_OF_RESULT[code] == status
    for code in (ResultCode.BAD_STATE, ResultCode.OUT_OF_MEMORY, ResultCode.UNMAPPABLE, ResultCode.DEAD_OBJECT):
        assert STATUS_OF_RESULT[code] == ErrorStatus.GENERAL_FAILURE
    assert STATUS_OF_RESULT[ResultCode.UNEXPECTED_NULL] == ErrorStatus.INVALID_ARGUMENT
    assert set(STATUS_OF_RESULT) == set(ResultCode)


def test_a_drivers_shapes_are_kept() -> None:
    failure = HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "too small", (OutputShape((2, 3), False),))
    error = error_of_hal(failure, "here")
    assert isinstance(error, OutputInsufficientSize)
    assert error.shapes == ((2, 3),)
    assert str(error) == "here: too small"


def test_a_status_that_is_none_of_the_hals_is_a_failure() -> None:
    error = error_of_hal(HalError(99, "made up"), "where")  # type: ignore[arg-type]
    assert (error.code, str(error)) == (ResultCode.OP_FAILED, "where: made up")

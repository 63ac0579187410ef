# SPDX-License-Identifier: Apache-2.0
"""HAL values cross process boundaries and are compared."""

from __future__ import annotations

import pickle

import pytest

from nn_runtime.codes import ResultCode
from nn_runtime.hal.types import RESULT_OF_STATUS, ErrorStatus, HalError, OutputShape
from tests.nn_runtime.hal.models import add_model


def test_a_model_can_be_pickled() -> None:
    model = add_model()
    assert pickle.loads(pickle.dumps(model)) == model


def test_an_error_keeps_status_and_shapes_when_pickled() -> None:
    error = HalError(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, "too small", (OutputShape((2, 3), False),))
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, str(again), again.output_shapes) == (error.status, "too small", error.output_shapes)


@pytest.mark.parametrize("status", list(ErrorStatus))
def test_every_status_has_a_result_code(status: ErrorStatus) -> None:
    assert (RESULT_OF_STATUS[status] == ResultCode.NO_ERROR) == (status == ErrorStatus.NONE)

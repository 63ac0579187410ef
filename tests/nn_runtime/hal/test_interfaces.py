# SPDX-License-Identifier: Apache-2.0
"""What the contract says of every driver, on the devices under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nn_runtime.hal.types import ErrorStatus, ExecutionPreference, HalError, Priority
from tests.nn_runtime.hal.models import add_model, request

if TYPE_CHECKING:
    from nn_runtime.device import Device


def test_a_prepared_model_that_is_closed_refuses_executions(device: Device) -> None:
    prepared = device.hal.prepare_model(
        add_model(), ExecutionPreference.FAST_SINGLE_ANSWER, Priority.MEDIUM, None, None
    )
    burst = prepared.configure_execution_burst()
    ones, output = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    asked = request([ones, ones], [output])
    prepared.execute_synchronously(asked, False, None, None)
    assert output.tolist() == [[2, 2], [2, 2]]
    output[:] = 0
    prepared.close()
    prepared.close()
    for execute in (
        lambda: prepared.execute_synchronously(asked, False, None, None),
        lambda: prepared.execute_fenced(asked, (), False, None, None, None),
        lambda: burst.execute(asked, False, None, None),
    ):
        with pytest.raises(HalError, match="the prepared model is closed") as caught:
            execute()
        assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
    assert not output.any()

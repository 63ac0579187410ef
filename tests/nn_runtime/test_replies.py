# SPDX-License-Identifier: Apache-2.0
"""What of a driver's reply reaches the runtime; through executions in test_execution_results.py."""

from __future__ import annotations

import numpy as np
import pytest

from nn_runtime.hal.types import ExecutionResult, OutputShape, Timing
from nn_runtime.replies import checked_result
from tests.nn_runtime.hal.models import add_model, request


@pytest.mark.parametrize("timing", [Timing(5, 10), Timing(10, 5)])
def test_times_that_were_not_asked_for_are_dropped(timing: Timing) -> None:
    main = add_model().main
    outputs = [main.operands[i] for i in main.output_indexes]
    ones = np.ones((2, 2), np.float32)
    reply = ExecutionResult((OutputShape((2, 2)),), timing)
    checked = checked_result(outputs, reply, request([ones, ones], [ones]), measure=False)
    assert checked == ExecutionResult((OutputShape((2, 2)),), Timing())

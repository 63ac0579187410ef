# SPDX-License-Identifier: Apache-2.0
"""Tables of capabilities."""

from __future__ import annotations

import pytest

from nn_runtime.codes import OperandCode
from nn_runtime.hal.capabilities import WORST, lookup, uniform, updated
from nn_runtime.hal.types import PerformanceInfo


def test_figures_of_single_types_can_be_replaced() -> None:
    better = PerformanceInfo(0.1, 0.1)
    table = updated(uniform(PerformanceInfo(1, 1)), [OperandCode.TENSOR_INT32], better)
    assert lookup(table, OperandCode.TENSOR_INT32) == better
    assert lookup(table, OperandCode.TENSOR_FLOAT32) == PerformanceInfo(1, 1)
    with pytest.raises(KeyError):
        updated(table, [OperandCode.MODEL], better)


def test_types_that_are_not_in_a_table_are_the_worst() -> None:
    table = uniform(PerformanceInfo(1, 1))
    assert set(table.operand_performance) == set(OperandCode) - {OperandCode.MODEL}
    assert lookup(table, OperandCode.MODEL) == lookup(table, 12345) == WORST

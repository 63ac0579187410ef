# SPDX-License-Identifier: Apache-2.0
"""Building and reading tables of capabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import OperandCode
from nn_runtime.hal.types import Capabilities, PerformanceInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

WORST = PerformanceInfo(3.4028234663852886e38, 3.4028234663852886e38)
"""Of what a driver's table does not name (float max)."""


def uniform(info: PerformanceInfo) -> Capabilities:
    """Return a table with the same figures for every operand type (but MODEL: it has no data) and special case."""
    codes = (code for code in OperandCode if code != OperandCode.MODEL)
    return Capabilities({int(code): info for code in codes}, info, info, info, info)


def updated(table: Capabilities, codes: Iterable[int], info: PerformanceInfo) -> Capabilities:
    """Return a table with other figures for some types; raises KeyError for a type that is not in it."""
    known = dict(table.operand_performance)
    for code in codes:
        if code not in known:
            raise KeyError(code)
        known[code] = info
    return replace(table, operand_performance=known)


def lookup(table: Capabilities, code: int) -> PerformanceInfo:
    """Return the figures of a type, WORST where there are none; never an error."""
    return table.operand_performance.get(code, WORST)

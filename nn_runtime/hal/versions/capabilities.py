# SPDX-License-Identifier: Apache-2.0
"""Building and reading tables of capabilities, and which operand types a version of the HAL knows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode
from nn_runtime.hal.types import Capabilities, PerformanceInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

WORST = PerformanceInfo(3.4028234663852886e38, 3.4028234663852886e38)
"""Of what a driver's table does not name (float max)."""

_SINCE_1_0 = frozenset(
    {
        OperandCode.FLOAT32,
        OperandCode.INT32,
        OperandCode.UINT32,
        OperandCode.TENSOR_FLOAT32,
        OperandCode.TENSOR_INT32,
        OperandCode.TENSOR_QUANT8_ASYMM,
        OperandCode.OEM_SCALAR,
        OperandCode.TENSOR_OEM_BYTE,
    }
)
_SINCE_1_3 = frozenset({OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.MODEL})


def types_of(version: int) -> frozenset[OperandCode]:
    """Return the operand types that a version has figures for (never MODEL: it has no data)."""
    if version < FeatureLevel.HAL_1_2:
        return _SINCE_1_0
    without = _SINCE_1_3 if version < FeatureLevel.HAL_1_3 else {OperandCode.MODEL}
    return frozenset(OperandCode) - without


def uniform(info: PerformanceInfo, version: int = FeatureLevel.HAL_1_3) -> Capabilities:
    """Return a table with the same figures for every type of a version and every special case."""
    return Capabilities({int(code): info for code in sorted(types_of(version))}, info, info, info, info)


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

# SPDX-License-Identifier: Apache-2.0
"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.unary import rsqrt_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


def _rsqrt(real: Array) -> Array:
    result: Array = np.float32(1) / np.sqrt(real)
    return result


_FUNCTIONS: dict[int, Callable[[Array], Array]] = {
    OperationCode.ABS: np.abs,
    OperationCode.EXP: np.exp,
    OperationCode.FLOOR: np.floor,
    OperationCode.LOG: np.log,
    OperationCode.NEG: np.negative,
    OperationCode.RSQRT: _rsqrt,
    OperationCode.SIN: np.sin,
    OperationCode.SQRT: np.sqrt,
}


@computes(*(OperationCode(code) for code in _FUNCTIONS))
def unary(op: OperationView) -> tuple[Array, ...]:
    """Return a function of each element; int32 wraps, 8-bit data goes by a table."""
    values, function = op.array("input"), _FUNCTIONS[op.code]
    if op.data_type in QUANT8_TYPES:
        return (rsqrt_table(op.input("input"), op.outputs[0]).take(values.view(np.uint8)),)
    if op.data_type == OperandCode.TENSOR_INT32:
        return (function(values),)
    return (function(values.astype(np.float32, copy=False)).astype(values.dtype, copy=False),)

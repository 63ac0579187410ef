# SPDX-License-Identifier: Apache-2.0
"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.broadcast import broadcast
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.comparison import COMPARISONS
from nn_runtime.quantization import dequantize

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

_FUNCTIONS: dict[int, np.ufunc] = {
    OperationCode.EQUAL: np.equal,
    OperationCode.NOT_EQUAL: np.not_equal,
    OperationCode.GREATER: np.greater,
    OperationCode.GREATER_EQUAL: np.greater_equal,
    OperationCode.LESS: np.less,
    OperationCode.LESS_EQUAL: np.less_equal,
}


@computes(*COMPARISONS)
def compare(op: OperationView) -> tuple[Array, ...]:
    """Return the comparison of two broadcast inputs; 8-bit ones as float32, any true byte as 1."""
    return (broadcast(_FUNCTIONS[op.code], _comparable(op, "input0"), _comparable(op, "input1")),)


def _comparable(op: OperationView, name: str) -> Array:
    values = op.array(name)
    if op.data_type == OperandCode.TENSOR_BOOL8:
        truth: Array = values.view(np.uint8) != 0
        return truth
    return dequantize(values, op.input(name)) if op.data_type in QUANT8_TYPES else values

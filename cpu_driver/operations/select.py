# SPDX-License-Identifier: Apache-2.0
"""SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.quantization import requantization_table

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.SELECT)
def select(op: OperationView) -> tuple[Array, ...]:
    """Return elements of `input_true` where the condition holds, else of `input_false`, requantised to the output."""
    condition = op.array("condition").view(np.uint8) != 0
    return (np.where(condition, _choice(op, "input_true"), _choice(op, "input_false")),)


def _choice(op: OperationView, name: str) -> Array:
    values = op.array(name)
    if op.data_type not in QUANT8_TYPES:
        return values
    return requantization_table(op.input(name), op.outputs[0]).take(values.view(np.uint8))

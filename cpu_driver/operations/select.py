# SPDX-License-Identifier: Apache-2.0
"""SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.quantize import requantized
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.SELECT)
def select(op: OperationView) -> tuple[Array, ...]:
    """Return elements of `input_true` where the condition holds, else of `input_false`, requantised to the output."""
    condition = op.array("condition").view(np.uint8) != 0
    choices = (requantized(op.array(name), op.input(name), op.outputs[0]) for name in ("input_true", "input_false"))
    return (np.where(condition, *choices),)

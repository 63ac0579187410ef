# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR)
def logical(op: OperationView) -> tuple[Array, ...]:
    """Return whether both, or any, of two broadcast inputs are true; every byte but 0 is."""
    # As bytes: numpy takes bools to be 0 or 1.
    first, second = op.array("input0").view(np.uint8), op.array("input1").view(np.uint8)
    return ((np.logical_and if op.code == OperationCode.LOGICAL_AND else np.logical_or)(first, second),)


@computes(OperationCode.LOGICAL_NOT)
def logical_not(op: OperationView) -> tuple[Array, ...]:
    """Return where the input is false."""
    return (op.array("input").view(np.uint8) == 0,)

# SPDX-License-Identifier: Apache-2.0
"""PAD and PAD_V2: a constant around the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.pad import pad_amounts, pad_value

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.PAD, OperationCode.PAD_V2)
def pad(op: OperationView) -> tuple[Array, ...]:
    """Return the input with a constant around it."""
    return (np.pad(op.array("input"), pad_amounts(op), constant_values=pad_value(op)),)

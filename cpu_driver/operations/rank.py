# SPDX-License-Identifier: Apache-2.0
"""RANK."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.RANK)
def rank(op: OperationView) -> tuple[Array, ...]:
    """Return the number of dimensions."""
    return (np.array(len(op.dimensions("input")), np.int32),)

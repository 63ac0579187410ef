# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.transpose import permutation

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.TRANSPOSE)
def transpose(op: OperationView) -> tuple[Array, ...]:
    """Return the input with its axes permuted."""
    return (np.ascontiguousarray(op.array("input").transpose(permutation(op))),)

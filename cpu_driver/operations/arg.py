# SPDX-License-Identifier: Apache-2.0
"""ARGMAX and ARGMIN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.ARGMAX)
def argmax(op: OperationView) -> tuple[Array, ...]:
    """Return the index of the largest element along an axis, the lowest of equal ones."""
    values = op.array("input")
    return (np.asarray(values.argmax(axis=op.axis("axis", values.ndim))).astype(np.int32),)


@computes(OperationCode.ARGMIN)
def argmin(op: OperationView) -> tuple[Array, ...]:
    """Return the index of the smallest element along an axis, the lowest of equal ones."""
    values = op.array("input")
    return (np.asarray(values.argmin(axis=op.axis("axis", values.ndim))).astype(np.int32),)

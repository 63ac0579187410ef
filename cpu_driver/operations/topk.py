# SPDX-License-Identifier: Apache-2.0
"""TOPK_V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.TOPK_V2)
def topk_v2(op: OperationView) -> tuple[Array, ...]:
    """Return the k greatest elements of each row, falling, and their places; the larger index first among equals."""
    values = op.array("input")
    # A stable rising sort read backwards.
    indices = values.argsort(axis=-1, kind="stable")[..., : -op.int_value("k") - 1 : -1]
    return np.take_along_axis(values, indices, axis=-1), indices.astype(np.int32)

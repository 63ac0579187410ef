# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION and SPLIT along one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.concatenation import concatenation_axis, concatenation_tables, split_axis

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.CONCATENATION)
def concatenation(op: OperationView) -> tuple[Array, ...]:
    """Return the inputs joined along one axis, requantised to the output."""
    axis = concatenation_axis(op)
    arrays = [value for operand in op.all_inputs("input") if (value := operand.value()) is not None]
    if op.data_type in QUANT8_TYPES:
        pairs = zip(arrays, concatenation_tables(op), strict=True)
        arrays = [array if table is None else table[array.view(np.uint8)] for array, table in pairs]
    return (np.concatenate(arrays, axis=axis),)


@computes(OperationCode.SPLIT)
def split(op: OperationView) -> tuple[Array, ...]:
    """Return equal parts of the input along one axis."""
    parts = np.split(op.array("input"), len(op.outputs), axis=split_axis(op))
    return tuple(np.ascontiguousarray(part) for part in parts)

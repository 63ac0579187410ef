# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, SQUEEZE and EXPAND_DIMS: the same elements under other dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.RESHAPE, OperationCode.SQUEEZE, OperationCode.EXPAND_DIMS)
def same_elements(op: OperationView) -> tuple[Array, ...]:
    """Return the input's elements; the caller gives them the output's dimensions."""
    return (op.array("input"),)

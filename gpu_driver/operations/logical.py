# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.kernel import int32
from gpu_driver.launchers.broadcast import pairwise, refuse_pair
from gpu_driver.operations import launches, supports
from gpu_driver.operations.activation import lookup
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch

supports(OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR)(refuse_pair)


@launches(OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR)
def logical(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOGICAL_AND, LOGICAL_OR. BOOL8, any rank; the lesser or greater truth value, kernel broadcast.cl:extreme."""
    operands = op.input("input0"), op.input("input1"), op.outputs[0]
    either = int32(op.code == OperationCode.LOGICAL_OR)
    return pairwise("extreme", operands, (either,), device)


@launches(OperationCode.LOGICAL_NOT)
def logical_not(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOGICAL_NOT. BOOL8; kernel activation_table.cl:lookup."""
    return lookup(op.input("input"), op.outputs[0], (np.arange(256) == 0).astype(np.uint8), device)

# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, SQUEEZE, EXPAND_DIMS: the same bytes under other dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launch import Alias
from gpu_driver.operations import launches
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.RESHAPE, OperationCode.SQUEEZE, OperationCode.EXPAND_DIMS)
def reshape(op: BoundOperation, device: DeviceProfile) -> Alias:
    """RESHAPE, SQUEEZE, EXPAND_DIMS. Any type; no work on the device."""
    return Alias(op.input("input"), op.outputs[0])

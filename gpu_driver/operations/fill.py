# SPDX-License-Identifier: Apache-2.0
"""FILL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import fill as fill_operand
from gpu_driver.operations import launches
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.FILL)
def fill(op: BoundOperation, device: DeviceProfile) -> Launch:
    """FILL. FLOAT32, FLOAT16, INT32; kernel strided_copy.cl:fill."""
    value = op.array("value").reshape(())
    return fill_operand(op.outputs[0], value.item(), device)

# SPDX-License-Identifier: Apache-2.0
"""RANK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import fill
from gpu_driver.operations import launches
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.RANK)
def rank(op: BoundOperation, device: DeviceProfile) -> Launch:
    """RANK. Any type; kernel strided_copy.cl:fill writes the number of dimensions."""
    return fill(op.outputs[0], len(op.dimensions("input")), device)

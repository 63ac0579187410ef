# SPDX-License-Identifier: Apache-2.0
"""TOPK_V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.vectors import LANES, c_type
from gpu_driver.launchers.worksize import linear, rows
from gpu_driver.operations import launches
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.TOPK_V2)
def topk(op: BoundOperation, device: DeviceProfile) -> Launch:
    """TOPK_V2. Every type; kernels topk.cl:topk_select, topk_rank."""
    source, (values, indices) = op.input("input"), op.outputs
    k, axis = op.int_value("k"), source.dimensions[-1]
    outer = source.count // axis
    types = (("T", c_type(source)),)
    moved = source.size_bytes + values.size_bytes + indices.size_bytes
    operands = source, values, indices, int32(axis), int32(k)
    if _selects(device, axis, k):
        global_size, local_size = linear(outer, device)
        kernel = Kernel("topk.cl", "topk_select", types)
        return Launch(kernel, (*operands, int32(outer)), global_size, local_size, k * source.count, moved)
    global_size, local_size = rows(axis, outer, device)
    kernel = Kernel("topk.cl", "topk_rank", types)
    return Launch(kernel, operands, global_size, local_size, axis * source.count, moved)


def _selects(device: DeviceProfile, axis: int, k: int) -> bool:
    """Whether k passes over a row by one work-item beat a pass by each of its elements, a vector of them at a time."""
    return device.is_cpu and k * LANES <= axis

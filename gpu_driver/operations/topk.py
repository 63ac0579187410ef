# SPDX-License-Identifier: Apache-2.0
"""TOPK_V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.vectors import LANES, c_type, per_item
from gpu_driver.launchers.worksize import rows
from gpu_driver.operations import launches
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile

_FEW = 64
"""So many are put in order one by one, however short the row; more of a long row alone."""


@launches(OperationCode.TOPK_V2)
def topk(op: BoundOperation, device: DeviceProfile) -> Launch:
    """TOPK_V2. Every type; kernels topk.cl:topk_insert, topk_rank."""
    source, (values, indices) = op.input("input"), op.outputs
    k, axis = op.int_value("k"), source.dimensions[-1]
    outer = source.count // axis
    types = (("T", c_type(source)),)
    moved = source.size_bytes + values.size_bytes + indices.size_bytes
    operands = source, values, indices, int32(axis), int32(k)
    if device.is_cpu and (k <= _FEW or k * LANES <= axis):
        item_rows = per_item(outer, device, axis)
        kernel = Kernel("topk.cl", "topk_insert", types)
        arguments = *operands, int32(outer), int32(item_rows)
        return Launch(kernel, arguments, (-(-outer // item_rows),), (1,), source.count, moved)
    global_size, local_size = rows(axis, outer, device)
    kernel = Kernel("topk.cl", "topk_rank", types)
    return Launch(kernel, operands, global_size, local_size, axis * source.count, moved)

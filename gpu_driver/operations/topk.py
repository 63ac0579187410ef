# SPDX-License-Identifier: Apache-2.0
"""TOPK_V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, Scratch, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import LANES, c_type, per_item
from gpu_driver.splits.worksize import rows
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile

_FEW, _MANY = 8, 128
"""So many are put in order one by one, however short the row, and more, up to many, of a long row alone."""

_SORTED_BYTES = 8
"""Of an element with its index."""
_MERGED_FLOPS = 4


@launches(OperationCode.TOPK_V2)
def topk(op: BoundOperation, device: DeviceProfile) -> Launch:
    """TOPK_V2. Every type; kernels topk.cl:topk_insert, topk_sort, topk_rank."""
    source, (values, indices) = op.input("input"), op.outputs
    k, axis = op.int_value("k"), source.dimensions[-1]
    outer = source.count // axis
    types = (("T", c_type(source)),)
    moved = source.size_bytes + values.size_bytes + indices.size_bytes
    operands = source, values, indices, int32(axis), int32(k)
    if not device.is_cpu:
        global_size, local_size = rows(axis, outer, device)
        return Launch(
            Kernel("topk.cl", "topk_rank", types),
            operands,
            global_size,
            local_size,
            flops=axis * source.count,
            bytes_moved=moved,
        )
    if k <= _FEW or (k <= _MANY and k * LANES <= axis):
        item_rows = per_item(outer, device, axis)
        kernel = Kernel("topk.cl", "topk_insert", types)
        arguments = *operands, int32(outer), int32(item_rows)
        return Launch(kernel, arguments, (-(-outer // item_rows),), (1,), flops=source.count, bytes_moved=moved)
    item_rows = -(-outer // device.compute_units)
    items = -(-outer // item_rows)
    scratch = Scratch(items * 2 * axis * _SORTED_BYTES)
    kernel = Kernel("topk.cl", "topk_sort", types)
    flops = source.count * (LANES + _MERGED_FLOPS * axis.bit_length())
    return Launch(
        kernel, (*operands, int32(outer), int32(item_rows), scratch), (items,), (1,), flops=flops, bytes_moved=moved
    )

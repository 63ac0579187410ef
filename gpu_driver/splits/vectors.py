# SPDX-License-Identifier: Apache-2.0
"""Work splits of kernels whose work-items loop over vectors of sixteen elements (VECTOR_KERNEL of common/types.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import int32
from gpu_driver.splits.worksize import round_up
from nn_runtime.codes import OperandCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Scalar
    from gpu_driver.launch import WorkSize

LANES = 16
"""Elements of a vector."""
_GROUP = 64
_ITEMS_PER_CORE = 4
_LEAST_PER_ITEM = 2048
_C_TYPES = {
    OperandCode.TENSOR_FLOAT32: "float",
    OperandCode.TENSOR_FLOAT16: "half",
    OperandCode.TENSOR_QUANT8_ASYMM: "uchar",
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: "char",
    OperandCode.TENSOR_QUANT8_SYMM: "char",
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: "char",
    OperandCode.TENSOR_INT32: "int",
}


def c_type(operand: BoundOperand) -> str:
    """Return the element type in common/types.h."""
    return _C_TYPES[OperandCode(operand.type)]


def defines(device: DeviceProfile, **types: str) -> tuple[tuple[str, str | int], ...]:
    """Return the defines of a VECTOR_KERNEL: types, and the work-items of a group where a group is more than one."""
    group = group_size(device)
    return (*types.items(), *((("GROUP", group),) if group > 1 else ()))


def group_size(device: DeviceProfile) -> int:
    """Return the work-items of a group: one on CPUs, where an item is a loop on a thread."""
    return 1 if device.is_cpu else min(_GROUP, device.max_work_group_size)


def per_item(count: int, device: DeviceProfile, cost: int = 1) -> int:
    """Return how many of `count` units a work-item takes; `cost`: elements that one unit reads or writes.

    On CPUs a few items for each core, unless they get too small; elsewhere one unit each.
    """
    if not device.is_cpu:
        return 1
    fair = -(-count // (device.compute_units * _ITEMS_PER_CORE))
    return max(1, min(count, max(fair, _LEAST_PER_ITEM // max(1, cost))))


def work_sizes(items: int, device: DeviceProfile, *outer: int) -> tuple[WorkSize, WorkSize]:
    """Return (global, local) for `items` of a VECTOR_KERNEL, which return where too many, and outer dimensions."""
    group = group_size(device)
    return (round_up(items, group), *outer), (group, *(1 for _ in outer))


def by_vectors(count: int, device: DeviceProfile) -> tuple[tuple[Scalar, Scalar], tuple[WorkSize, WorkSize]]:
    """Return (count, per_item), and (global, local), of a VECTOR_KERNEL on `count` elements that have one row."""
    vectors = -(-count // LANES)
    item_vectors = per_item(vectors, device, LANES)
    return (int32(count), int32(item_vectors)), work_sizes(-(-vectors // item_vectors), device)

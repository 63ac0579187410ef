# SPDX-License-Identifier: Apache-2.0
"""ARGMAX, ARGMIN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import LANES, c_type, defines, per_item, work_sizes
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.ARGMAX, OperationCode.ARGMIN)
def argmax(op: BoundOperation, device: DeviceProfile) -> Launch:
    """ARGMAX, ARGMIN. Every type; kernels arg.cl:argmax, argmax_rows (last axis, at least a vector long)."""
    source, output = op.input("input"), op.outputs[0]
    dims = source.dimensions
    at = op.axis("axis", len(dims))
    outer, axis, inner = math.prod(dims[:at]), dims[at], math.prod(dims[at + 1 :])
    kernel_defines = defines(device, T=c_type(source))
    least = int32(op.code == OperationCode.ARGMIN)
    moved = source.size_bytes + output.size_bytes
    if inner > 1 or axis < LANES:
        global_size, local_size = linear(output.count, device)
        sizes = int32(axis), int32(inner), int32(output.count), least
        kernel = Kernel("arg.cl", "argmax", kernel_defines)
        return Launch(kernel, (source, output, *sizes), global_size, local_size, flops=source.count, bytes_moved=moved)
    item_rows = per_item(outer, device, axis)
    global_size, local_size = work_sizes(-(-outer // item_rows), device)
    return Launch(
        Kernel("arg.cl", "argmax_rows", kernel_defines),
        (source, output, int32(axis), int32(outer), int32(item_rows), least),
        global_size,
        local_size,
        flops=source.count,
        bytes_moved=moved,
    )

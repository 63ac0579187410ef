# SPDX-License-Identifier: Apache-2.0
"""LOG_SOFTMAX."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, float32, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type, per_item
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.LOG_SOFTMAX)
def log_softmax(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOG_SOFTMAX. FLOAT32, FLOAT16; kernels log_softmax.cl:log_softmax, log_softmax_rows (last axis)."""
    source, output = op.input("input"), op.outputs[0]
    dims = source.dimensions
    at = op.axis("axis", len(dims))
    outer, axis, inner = math.prod(dims[:at]), dims[at], math.prod(dims[at + 1 :])
    common = source, output, float32(op.float_value("beta")), int32(axis)
    types, flops, moved = (("T", c_type(output)),), 3 * output.count, 2 * output.size_bytes
    if device.is_cpu and inner == 1:
        item_rows = per_item(outer, device, axis)
        kernel, sizes = Kernel("log_softmax.cl", "log_softmax_rows", types), (int32(outer), int32(item_rows))
        return Launch(kernel, (*common, *sizes), (-(-outer // item_rows),), (1,), flops=flops, bytes_moved=moved)
    global_size, local_size = linear(outer * inner, device)
    kernel, sizes = Kernel("log_softmax.cl", "log_softmax", types), (int32(inner), int32(outer * inner))
    return Launch(kernel, (*common, *sizes), global_size, local_size, flops=flops, bytes_moved=moved)

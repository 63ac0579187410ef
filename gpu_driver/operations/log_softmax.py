# SPDX-License-Identifier: Apache-2.0
"""LOG_SOFTMAX."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, float32, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.vectors import c_type
from gpu_driver.launchers.worksize import linear
from gpu_driver.operations import launches
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(OperationCode.LOG_SOFTMAX)
def log_softmax(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOG_SOFTMAX. FLOAT32, FLOAT16; kernel log_softmax.cl:log_softmax."""
    source, output = op.input("input"), op.outputs[0]
    dims = source.dimensions
    at = op.axis("axis", len(dims))
    inner = math.prod(dims[at + 1 :])
    count = math.prod(dims[:at]) * inner
    global_size, local_size = linear(count, device)
    return Launch(
        Kernel("log_softmax.cl", "log_softmax", (("T", c_type(output)),)),
        (source, output, float32(op.float_value("beta")), int32(dims[at]), int32(inner), int32(count)),
        global_size,
        local_size,
        3 * output.count,
        2 * output.size_bytes,
    )

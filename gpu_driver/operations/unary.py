# SPDX-License-Identifier: Apache-2.0
"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launch import Kernel, Launch, int32
from gpu_driver.operations import launches
from gpu_driver.operations.activation import lookup
from gpu_driver.vectors import c_type
from gpu_driver.worksize import linear
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.unary import rsqrt_table

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


@launches(
    OperationCode.ABS,
    OperationCode.EXP,
    OperationCode.FLOOR,
    OperationCode.LOG,
    OperationCode.NEG,
    OperationCode.RSQRT,
    OperationCode.SIN,
    OperationCode.SQRT,
)
def unary(op: BoundOperation, device: DeviceProfile) -> Launch:
    """ABS ... SQRT. FLOAT32, FLOAT16, ABS and NEG also INT32: unary.cl; RSQRT of QUANT8: activation_table.cl."""
    source, output = op.input("input"), op.outputs[0]
    if op.data_type in QUANT8_TYPES:
        return lookup(source, output, rsqrt_table(source, output), device)
    global_size, local_size = linear(output.count, device)
    return Launch(
        Kernel("unary.cl", f"unary_{OperationCode(op.code).name.lower()}", (("T", c_type(output)),)),
        (source, output, int32(output.count)),
        global_size,
        local_size,
        output.count,
        2 * output.size_bytes,
    )

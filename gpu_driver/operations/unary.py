# SPDX-License-Identifier: Apache-2.0
"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.operations import launches
from gpu_driver.operations.activation import lookup, mapped
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.unary import rsqrt_table

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


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
    return mapped("unary.cl", f"unary_{OperationCode(op.code).name.lower()}", op, device)

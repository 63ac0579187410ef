# SPDX-License-Identifier: Apache-2.0
"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver import chain
from gpu_driver.operations import launches
from gpu_driver.operations.activation import by_table, mapped
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.unary import rsqrt_table

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


_IN_CHAINS = {
    OperationCode.ABS: chain.Function.ABS,
    OperationCode.EXP: chain.Function.EXP,
    OperationCode.FLOOR: chain.Function.FLOOR,
    OperationCode.LOG: chain.Function.LOG,
    OperationCode.NEG: chain.Function.NEG,
    OperationCode.RSQRT: chain.Function.RSQRT,
    OperationCode.SIN: chain.Function.SIN,
    OperationCode.SQRT: chain.Function.SQRT,
}


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
        return by_table(op, rsqrt_table(source, output), device)
    code = OperationCode(op.code)
    return mapped("unary.cl", f"unary_{code.name.lower()}", op, device, _IN_CHAINS.get(code))

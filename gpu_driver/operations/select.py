# SPDX-License-Identifier: Apache-2.0
"""SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, Packed, int32
from gpu_driver.launch import Launch
from gpu_driver.launchers.strided import raw_type
from gpu_driver.launchers.worksize import linear
from gpu_driver.operations import launches
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.quantization import requantization_table

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument


@launches(OperationCode.SELECT)
def select(op: BoundOperation, device: DeviceProfile) -> Launch:
    """SELECT. FLOAT32, FLOAT16, INT32: kernel select.cl:select_raw; QUANT8: select_quant8, through tables."""
    condition, output = op.input("condition"), op.outputs[0]
    choices = op.input("input_true"), op.input("input_false")
    name = "select_raw"
    tables: tuple[Argument, ...] = ()
    if output.type in QUANT8_TYPES:
        name = "select_quant8"
        tables = tuple(Packed(requantization_table(choice, output)) for choice in choices)
    global_size, local_size = linear(output.count, device)
    return Launch(
        Kernel("select.cl", name, (("T", raw_type(output)),)),
        (condition, *choices, output, *tables, int32(output.count)),
        global_size,
        local_size,
        bytes_moved=condition.size_bytes + 3 * output.size_bytes,
    )

# SPDX-License-Identifier: Apache-2.0
"""SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain import elementwise as programs
from gpu_driver.kernel import Kernel, Packed, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import by_vectors
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES, dtype_of
from nn_runtime.quantization import requantization_table

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile


_TYPES = {1: "uchar", 2: "ushort", 4: "int"}
"""By the element's size."""
_AS_THEY_ARE = np.arange(256, dtype=np.uint8)


@launches(OperationCode.SELECT)
def select(op: BoundOperation, device: DeviceProfile) -> Launch:
    """SELECT. Every type: kernels select.cl:select_raw, select_vectors; QUANT8 of two scales: select_quant8."""
    condition, output = op.input("condition"), op.outputs[0]
    choices = op.input("input_true"), op.input("input_false")
    types = (("T", _TYPES[dtype_of(output.type).itemsize]),)
    operands, moved = (condition, *choices, output), condition.size_bytes + 3 * output.size_bytes
    sizes = linear(output.count, device)
    if output.type in QUANT8_TYPES:
        tables = [requantization_table(choice, output).view(np.uint8) for choice in choices]
        if not all(np.array_equal(table, _AS_THEY_ARE) for table in tables):
            true, false = (Packed(table) for table in tables)
            arguments = *operands, true, false, int32(output.count)
            return Launch(Kernel("select.cl", "select_quant8", types), arguments, *sizes, bytes_moved=moved)
    if device.is_cpu:
        counts, sizes = by_vectors(output.count, device)
        launch = Launch(Kernel("select.cl", "select_vectors", types), (*operands, *counts), *sizes, bytes_moved=moved)
        kernel = chain.step_kernel(output, device) if output.type in FLOAT_TYPES else None
        step = None if kernel is None else programs.select_step(kernel, output, condition, choices)
        return programs.joinable(launch, step)
    return Launch(Kernel("select.cl", "select_raw", types), (*operands, int32(output.count)), *sizes, bytes_moved=moved)

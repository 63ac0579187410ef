# SPDX-License-Identifier: Apache-2.0
"""RELU, RELU1, RELU6, LOGISTIC, TANH, HARD_SWISH, ELU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import byte_tables, chain
from gpu_driver.chain import elementwise as programs
from gpu_driver.kernel import Kernel, Packed, float32, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import by_vectors, c_type, defines, per_item, work_sizes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.activation import RELU_BOUNDS, activation_table
from nn_runtime.quantization import activation_range_float, activation_range_quantized

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument
    from nn_runtime.operand import Array

_TABLE_SOURCE = "activation_table.cl"
_SMOOTH = {
    OperationCode.LOGISTIC: ("logistic", chain.Function.LOGISTIC),
    OperationCode.TANH: ("hyperbolic_tangent", chain.Function.TANH),
    OperationCode.HARD_SWISH: ("hard_swish", chain.Function.HARD_SWISH),
}


@launches(OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6)
def relu(op: BoundOperation, device: DeviceProfile) -> Launch:
    """RELU, RELU1, RELU6. FLOAT32, FLOAT16, QUANT8; kernel activation.cl:relu."""
    source, output = op.input("input"), op.outputs[0]
    bounds = RELU_BOUNDS[op.code]
    if op.data_type in QUANT8_TYPES:
        low, high = (int32(bound) for bound in activation_range_quantized(bounds, output))
    else:
        low, high = (float32(bound) for bound in activation_range_float(bounds))
    counts, sizes = by_vectors(output.count, device)
    launch = Launch(
        Kernel("activation.cl", "relu", defines(device, T=c_type(output))),
        (source, output, low, high, *counts),
        *sizes,
        flops=output.count,
        bytes_moved=2 * output.size_bytes,
        in_place=True,
    )
    return programs.joinable(launch, chain_step(op, device, chain.Function.CLAMP, (low.item(), high.item())))


@launches(OperationCode.LOGISTIC, OperationCode.TANH, OperationCode.HARD_SWISH)
def smooth(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOGISTIC, TANH, HARD_SWISH. FLOAT32, FLOAT16; kernels of activation_smooth.cl. QUANT8: activation_table.cl."""
    if op.data_type in QUANT8_TYPES:
        table = activation_table(op.code, op.input("input"), op.outputs[0])
        return by_table(op, table, device)
    kernel, function = _SMOOTH[OperationCode(op.code)]
    return mapped("activation_smooth.cl", kernel, op, device, function)


@launches(OperationCode.ELU)
def elu(op: BoundOperation, device: DeviceProfile) -> Launch:
    """ELU. FLOAT32, FLOAT16; kernel activation_smooth.cl:elu."""
    alpha = op.float_value("alpha")
    launch = mapped("activation_smooth.cl", "elu", op, device, None, float32(alpha))
    return programs.joinable(launch, chain_step(op, device, chain.Function.ELU, numbers={"alpha": alpha}))


def mapped(
    file: str,
    kernel: str,
    op: BoundOperation,
    device: DeviceProfile,
    function: chain.Function | None = None,
    *parameters: Argument,
) -> Launch:
    """Return the launch of a kernel of common/map.h, defined by T, from the operation's input to its output.

    function: the same in a chain, where chains have it.
    """
    source, output = op.input("input"), op.outputs[0]
    counts, sizes = by_vectors(output.count, device)
    launch = Launch(
        Kernel(file, kernel, defines(device, T=c_type(output))),
        (source, output, *counts, *parameters),
        *sizes,
        flops=output.count,
        bytes_moved=2 * output.size_bytes,
        in_place=True,
    )
    return launch if function is None else programs.joinable(launch, chain_step(op, device, function))


def chain_step(
    op: BoundOperation,
    device: DeviceProfile,
    function: chain.Function,
    bounds: tuple[float, float] | None = None,
    numbers: Mapping[str, float] | None = None,
    table: Array | None = None,
) -> chain.Step | None:
    """Return what takes the place of an operation of one tensor in a chain, None where it does not fit in."""
    output = op.outputs[0]
    kernel = chain.step_kernel(output, device)
    if kernel is None:
        return None
    low, high = bounds or ((0, 0) if op.data_type in QUANT8_TYPES else (-math.inf, math.inf))
    return programs.step_of(
        kernel,
        output,
        [op.input("input")],
        function,
        low,
        high,
        numbers,
        table,
        (lambda codes, _: np.clip(codes, low, high)) if function == chain.Function.CLAMP else None,
    )


def by_table(op: BoundOperation, table: Array, device: DeviceProfile) -> Launch:
    """Return the launch of an operation from 8 bits to 8 bits of the same type."""
    launch = lookup(op.input("input"), op.outputs[0], table, device)
    return programs.joinable(launch, chain_step(op, device, chain.Function.TABLE, table=table))


def lookup(source: BoundOperand, output: BoundOperand, table: Array, device: DeviceProfile) -> Launch:
    """Return the launch of activation_table.cl:lookup: `table` [256] by the byte of each one-byte element."""
    item_elements = per_item(output.count, device)
    global_size, local_size = work_sizes(-(-output.count // item_elements), device)
    dot4 = device.dot4_of_vectors if device.takes_assembly(_TABLE_SOURCE) else 0
    form, data = ((("DOT4", dot4),), byte_tables.packed(table)) if dot4 else ((), table)
    return Launch(
        Kernel(_TABLE_SOURCE, "lookup", (*form, *defines(device))),
        (source, output, Packed(data), int32(output.count), int32(item_elements)),
        global_size,
        local_size,
        flops=output.count,
        bytes_moved=2 * output.size_bytes,
        in_place=True,
    )

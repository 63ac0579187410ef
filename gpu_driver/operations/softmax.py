# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver import chain
from gpu_driver.kernel import Kernel, Packed, float32, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import c_type, defines, group_size, per_item
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.softmax import softmax_tables

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument

_OF_BYTES = "softmax_quant8.cl"


@launches(OperationCode.SOFTMAX)
def softmax(op: BoundOperation, device: DeviceProfile) -> Launch:
    """SOFTMAX. FLOAT32, FLOAT16: softmax.cl; QUANT8: softmax_quant8.cl; kernels softmax, softmax_rows (last axis)."""
    source, output = op.input("input"), op.outputs[0]
    dims = source.dimensions
    at = op.axis("axis", len(dims), default=-1)
    outer, axis, inner = math.prod(dims[:at]), dims[at], math.prod(dims[at + 1 :])
    file = _OF_BYTES if op.data_type in QUANT8_TYPES else "softmax.cl"
    common = (source, output, *_parameters(op), int32(axis))
    types, moved = (*_dot4(file, device), *defines(device, T=c_type(output))), 2 * output.size_bytes
    if inner > 1:
        global_size, local_size = linear(outer * inner, device)
        kernel, sizes = Kernel(file, "softmax", types), (int32(inner), int32(outer * inner))
        return Launch(kernel, (*common, *sizes), global_size, local_size, flops=3 * output.count, bytes_moved=moved)
    group = group_size(device)
    item_rows = per_item(outer, device, axis)
    launch = Launch(
        Kernel(file, "softmax_rows", types),
        (*common, int32(outer), int32(item_rows)),
        (group * -(-outer // item_rows),),
        (group,),
        flops=3 * output.count,
        bytes_moved=moved,
    )
    return replace(launch, steps=(_chain_step(launch, op, (outer, axis), device),)) if device.builds_chains else launch


def _chain_step(launch: Launch, op: BoundOperation, sizes: tuple[int, int], device: DeviceProfile) -> chain.Step:
    """Return what takes the launch's place after convolutions; sizes: how many rows of how many."""
    source, output = op.input("input"), op.outputs[0]
    quantized = op.data_type in QUANT8_TYPES
    outer, depth = sizes
    batches = math.gcd(outer, output.dimensions[0])
    beta = op.float_value("beta")
    tables = softmax_tables(beta, source.scale) if quantized else None
    return chain.Step(
        chain.common_kernel((("T", c_type(output)), ("QUANTIZED", int(quantized))), device),
        chain.Kind.SOFTMAX,
        source,
        output,
        geometry=chain.rows_of(outer // batches, depth, batches),
        constants=() if tables is None else (tables.exponentials, tables.terms),
        values={"low": beta} if tables is None else {"zero_out": _offset(source)},
        flops=launch.flops,
        bytes_moved=launch.bytes_moved,
    )


def _dot4(file: str, device: DeviceProfile) -> tuple[tuple[str, int], ...]:
    """Return the define DOT4 of softmax_quant8.cl, where assembly works."""
    dot4 = device.dot4_of_vectors if file == _OF_BYTES and device.takes_assembly(file) else 0
    return (("DOT4", dot4),) if dot4 else ()


def _parameters(op: BoundOperation) -> tuple[Argument, ...]:
    beta, source = op.float_value("beta"), op.input("input")
    if op.data_type not in QUANT8_TYPES:
        return (float32(beta),)
    tables = softmax_tables(beta, source.scale)
    return Packed(tables.exponentials), Packed(tables.terms), int32(_offset(source))


def _offset(source: BoundOperand) -> int:
    return -128 if source.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 0

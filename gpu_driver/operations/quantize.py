# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE, DEQUANTIZE, CAST."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain.elementwise import joinable
from gpu_driver.kernel import Kernel, Packed, float32, int32
from gpu_driver.launch import Alias, Launch
from gpu_driver.operations import launches
from gpu_driver.operations.activation import by_table, lookup
from gpu_driver.operations.conv import flip_signs
from gpu_driver.splits.vectors import by_vectors, c_type, defines
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Steps
    from nn_runtime.operand import Array, ChannelQuant


@launches(OperationCode.QUANTIZE)
def quantize(op: BoundOperation, device: DeviceProfile) -> Launch:
    """QUANTIZE. FLOAT32, FLOAT16 to QUANT8; kernel quantize.cl:quantize, step of chain.cl."""
    source, output = op.input("input"), op.outputs[0]
    scale = np.float32(output.scale)
    counts, sizes = by_vectors(output.count, device)
    parameters = float32(output.scale), float32(float(np.float32(1) / scale)), int32(output.zero_point)
    launch = Launch(
        Kernel("quantize.cl", "quantize", defines(device, T=c_type(source), Q=c_type(output))),
        (source, output, *parameters, *counts),
        *sizes,
        flops=output.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )
    return joinable(launch, chain.conversion_step(chain.Kind.QUANTIZE, source, output, device))


@launches(OperationCode.DEQUANTIZE)
def dequantize(op: BoundOperation, device: DeviceProfile) -> Launch | Steps:
    """DEQUANTIZE. Every 8-bit type to FLOAT32, FLOAT16; kernels quantize.cl:dequantize, dequantize_per_channel,
    step of chain.cl.
    """
    source, output = op.input("input"), op.outputs[0]
    if op.fusion.table is not None:
        return _by_table(op, op.fusion.table, device)
    if source.channel_quant is not None:
        return _dequantize_per_channel(op, source.channel_quant, device)
    counts, sizes = by_vectors(output.count, device)
    launch = Launch(
        Kernel("quantize.cl", "dequantize", defines(device, T=c_type(output), Q=c_type(source))),
        (source, output, float32(source.scale), int32(source.zero_point), *counts),
        *sizes,
        flops=output.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )
    return joinable(launch, chain.conversion_step(chain.Kind.DEQUANTIZE, source, output, device))


def _by_table(op: BoundOperation, table: Array, device: DeviceProfile) -> Launch | Steps:
    """DEQUANTIZE, operations on real numbers and QUANTIZE at once: one 8-bit type to the same or the other."""
    source, output = op.input("input"), op.outputs[0]
    if source.type == output.type:
        return by_table(op, table, device)
    if device.builds_chains and np.array_equal(table.view(np.uint8), np.arange(256, dtype=np.uint8) ^ 0x80):
        return flip_signs(source, output, device)
    return lookup(source, output, table, device)


def _dequantize_per_channel(op: BoundOperation, quant: ChannelQuant, device: DeviceProfile) -> Launch:
    source, output = op.input("input"), op.outputs[0]
    scales = Packed(np.array(quant.scales, np.float32))
    inner = math.prod(source.dimensions[quant.channel_dim + 1 :])
    global_size, local_size = linear(output.count, device)
    return Launch(
        Kernel("quantize.cl", "dequantize_per_channel", defines(device, T=c_type(output), Q=c_type(source))),
        (source, output, scales, int32(inner), int32(len(quant.scales)), int32(output.count)),
        global_size,
        local_size,
        flops=output.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )


@launches(OperationCode.CAST)
def cast(op: BoundOperation, device: DeviceProfile) -> Launch | Alias:
    """CAST. Among FLOAT32, FLOAT16, INT32, QUANT8_ASYMM: kernels cast.cl:cast, cast_vectors; to the same: no work."""
    source, output = op.input("input"), op.outputs[0]
    if source.type == output.type:
        return Alias(source, output)
    types = ("FROM", c_type(source)), ("TO", c_type(output))
    moved = source.size_bytes + output.size_bytes
    if device.is_cpu:
        counts, sizes = by_vectors(output.count, device)
        return Launch(Kernel("cast.cl", "cast_vectors", types), (source, output, *counts), *sizes, bytes_moved=moved)
    sizes = linear(output.count, device)
    return Launch(Kernel("cast.cl", "cast", types), (source, output, int32(output.count)), *sizes, bytes_moved=moved)

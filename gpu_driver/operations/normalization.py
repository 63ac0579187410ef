# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.kernel import Kernel, float32, int32
from gpu_driver.launch import Launch
from gpu_driver.operations import launches
from gpu_driver.splits.vectors import LANES, c_type, per_item
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument


@launches(OperationCode.L2_NORMALIZATION)
def l2_normalization(op: BoundOperation, device: DeviceProfile) -> Launch:
    """L2_NORMALIZATION. FLOAT32, FLOAT16: normalization.cl; QUANT8: normalization_quant8.cl."""
    outer, axis, inner = _along_axis(op)
    if op.data_type in QUANT8_TYPES:
        zeros = int32(op.input("input").zero_point), int32(op.outputs[0].zero_point)
        return _launch(op, "normalization_quant8.cl", zeros, (axis, inner, outer * inner), device)
    if not device.is_cpu or inner > 1 or axis < LANES:
        return _launch(op, "normalization.cl", (), (axis, inner, outer * inner), device)
    source, output = op.input("input"), op.outputs[0]
    item_rows = per_item(outer, device, axis)
    return Launch(
        Kernel("normalization.cl", "l2_normalization_rows", (("T", c_type(output)),)),
        (source, output, int32(axis), int32(outer), int32(item_rows)),
        (-(-outer // item_rows),),
        (1,),
        flops=4 * output.count,
        bytes_moved=2 * output.size_bytes,
    )


@launches(OperationCode.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOCAL_RESPONSE_NORMALIZATION. FLOAT32, FLOAT16; kernel normalization.cl:local_response_normalization."""
    outer, axis, inner = _along_axis(op)
    factors = (float32(op.float_value(name)) for name in ("bias", "alpha", "beta"))
    parameters = int32(op.int_value("radius")), *factors
    return _launch(op, "normalization.cl", parameters, (axis, inner, outer * axis * inner), device)


@launches(OperationCode.INSTANCE_NORMALIZATION)
def instance_normalization(op: BoundOperation, device: DeviceProfile) -> Launch:
    """INSTANCE_NORMALIZATION. FLOAT32, FLOAT16; kernel normalization.cl:instance_normalization."""
    dims = op.dimensions("input")
    if op.bool_value("layout"):
        outer, area, inner = dims[0] * dims[1], dims[2] * dims[3], 1
    else:
        outer, area, inner = dims[0], dims[1] * dims[2], dims[3]
    parameters = tuple(float32(op.float_value(name)) for name in ("gamma", "beta", "epsilon"))
    return _launch(op, "normalization.cl", parameters, (area, inner, outer * inner), device)


def _along_axis(op: BoundOperation) -> tuple[int, int, int]:
    """Return the sizes before, at and after the axis."""
    dims = op.dimensions("input")
    at = op.axis("axis", len(dims), default=-1)
    return math.prod(dims[:at]), dims[at], math.prod(dims[at + 1 :])


def _launch(
    op: BoundOperation, file: str, parameters: tuple[Argument, ...], sizes: tuple[int, int, int], device: DeviceProfile
) -> Launch:
    """Return the launch of the kernel of the operation's name; sizes are axis, inner and the number of work-items."""
    source, output = op.input("input"), op.outputs[0]
    global_size, local_size = linear(sizes[-1], device)
    return Launch(
        Kernel(file, OperationCode(op.code).name.lower(), (("T", c_type(output)),)),
        (source, output, *parameters, *(int32(size) for size in sizes)),
        global_size,
        local_size,
        flops=4 * output.count,
        bytes_moved=2 * output.size_bytes,
    )

# SPDX-License-Identifier: Apache-2.0
"""MEAN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.launch import Kernel, Launch, int32, int_vector
from gpu_driver.operations import launches
from gpu_driver.strided import dense_strides
from gpu_driver.vectors import LANES, c_type, defines, group_size, work_sizes
from gpu_driver.worksize import linear
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.reduce import mean_multiplier, reduction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Argument, Scalar

_MAX_RANK = 4
_MAX_QUANTIZED_TERMS = 1 << 23
"""So many 8-bit terms, centred, sum up within 32 bits."""
_FEW_OUTPUTS = 4096
_MANY_TERMS = 256


@launches(OperationCode.MEAN)
def mean(op: BoundOperation, device: DeviceProfile) -> Launch:
    """MEAN. FLOAT32, FLOAT16, QUANT8, rank up to 4; kernels reduce.cl:mean, mean_vectors, mean_groups."""
    source, output = op.input("input"), op.outputs[0]
    dims, axes = source.dimensions, reduction(op).axes
    terms = math.prod(dims[axis] for axis in axes)
    if op.data_type in QUANT8_TYPES and terms > _MAX_QUANTIZED_TERMS:
        op.fail("axes", f"must reduce at most {_MAX_QUANTIZED_TERMS} elements of 8 bits", terms)
    kept = [axis for axis in range(len(dims)) if axis not in axes]
    inner = dims[-1] if kept and kept[-1] == len(dims) - 1 else 1
    if _wants_groups(device, output.count, terms):
        kernel, sizes = "mean_groups", work_sizes(output.count * group_size(device), device)
        arguments = _arguments(op, kept, axes, terms)
    elif inner >= LANES:
        kernel, sizes = "mean_vectors", work_sizes(-(-inner // LANES), device, output.count // inner)
        arguments = *_arguments(op, kept[:-1], axes, terms), int32(inner)
    else:
        kernel, sizes = "mean", linear(output.count, device)
        arguments = *_arguments(op, kept, axes, terms), int32(output.count)
    return Launch(
        Kernel("reduce.cl", kernel, defines(device, T=c_type(output))),
        (source, output, *arguments),
        *sizes,
        flops=source.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )


def _wants_groups(device: DeviceProfile, outputs: int, terms: int) -> bool:
    """Whether so few outputs have so many terms that they keep a GPU busy only if a group shares each."""
    return not device.is_cpu and outputs <= _FEW_OUTPUTS and terms >= _MANY_TERMS


def _arguments(op: BoundOperation, kept: Sequence[int], axes: Sequence[int], terms: int) -> tuple[Argument, ...]:
    dims, zero_point = op.dimensions("input"), op.input("input").zero_point
    strides = dense_strides(dims)
    multiplier = mean_multiplier(terms)
    return (
        _int4((dims[axis] for axis in kept), 1),
        _int4((strides[axis] for axis in kept), 0),
        _int4((dims[axis] for axis in axes), 1),
        _int4((strides[axis] for axis in axes), 0),
        int32(terms),
        int_vector(multiplier.mantissa, multiplier.exponent),
        int32(zero_point),
    )


def _int4(values: Iterable[int], unused: int) -> Scalar:
    known = list(values)
    return int_vector(*[unused] * (_MAX_RANK - len(known)), *known)

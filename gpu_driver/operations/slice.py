# SPDX-License-Identifier: Apache-2.0
"""SLICE, STRIDED_SLICE, REVERSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import Side, strided_copies
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.slice import slice_parameters

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.SLICE, OperationCode.STRIDED_SLICE, OperationCode.REVERSE)
def slice_(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """SLICE, STRIDED_SLICE, REVERSE. Any type; kernel strided_copy.cl:strided_copy, dropped axes have size 1."""
    source, output = op.input("input"), op.outputs[0]
    taken = slice_parameters(op)
    dense = dense_strides(source.dimensions)
    strides = tuple(stride * step for stride, step in zip(dense, taken.strides, strict=True))
    offset = sum(begin * stride for begin, stride in zip(taken.begins, dense, strict=True))
    return strided_copies(taken.sizes, Side(source, strides, offset), Side(output, dense_strides(taken.sizes)), device)

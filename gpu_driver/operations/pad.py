# SPDX-License-Identifier: Apache-2.0
"""PAD, PAD_V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.operations import launches
from gpu_driver.strided import Side, dense_strides, fill, strided_copy
from nn_runtime.codes import OperationCode
from nn_runtime.operations.pad import pad_amounts, pad_value

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.PAD, OperationCode.PAD_V2)
def pad(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """PAD, PAD_V2. Any type; the output is filled with the constant, then the input is copied into its middle."""
    source, output = op.input("input"), op.outputs[0]
    strides = dense_strides(output.dimensions)
    offset = sum(before * stride for (before, _), stride in zip(pad_amounts(op), strides, strict=True))
    inside = strided_copy(
        source.dimensions, Side(source, dense_strides(source.dimensions)), Side(output, strides, offset), device
    )
    return fill(output, pad_value(op), device), inside

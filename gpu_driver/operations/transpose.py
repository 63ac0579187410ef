# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.transpose import permutation

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.TRANSPOSE)
def transpose(op: BoundOperation, device: DeviceProfile) -> Launch:
    """TRANSPOSE. Any type; kernel strided_copy.cl:strided_copy."""
    source, output = op.input("input"), op.outputs[0]
    strides = dense_strides(source.dimensions)
    permuted = tuple(strides[axis] for axis in permutation(op))
    sizes = output.dimensions
    return strided_copy(sizes, Side(source, permuted), Side(output, dense_strides(sizes)), device)

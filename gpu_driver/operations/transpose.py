# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.operations import launches
from gpu_driver.strided import dense_strides, strided_copy
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.TRANSPOSE)
def transpose(op: BoundOperation, device: DeviceProfile) -> Launch:
    """TRANSPOSE. Any type and rank up to 8; kernel strided_copy.cl:strided_copy."""
    source, output = op.input("input"), op.outputs[0]
    permutation = op.int_values("perm") if op.optional("perm") else list(range(len(source.dimensions)))[::-1]
    strides = dense_strides(source.dimensions)
    sizes = output.dimensions
    return strided_copy(source, output, sizes, [strides[axis] for axis in permutation], dense_strides(sizes), device)

# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain import elementwise as programs
from gpu_driver.launchers.strided import Side, dense_strides, strided_copy
from gpu_driver.operations import launches
from gpu_driver.operations.conv import step_kernel
from nn_runtime.codes import OperationCode
from nn_runtime.operations.transpose import permutation

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch

_MOST_OUTER = 3
"""Dimensions before the last, as in copy_step.h."""


@launches(OperationCode.TRANSPOSE)
def transpose(op: BoundOperation, device: DeviceProfile) -> Launch:
    """TRANSPOSE. Any type; kernel strided_copy.cl:strided_copy."""
    source, output = op.input("input"), op.outputs[0]
    strides = dense_strides(source.dimensions)
    permuted = tuple(strides[axis] for axis in permutation(op))
    sizes = output.dimensions
    launch = strided_copy(sizes, Side(source, permuted), Side(output, dense_strides(sizes)), device)
    return programs.joinable(launch, _chain_step(launch, op, permuted, device))


def _chain_step(
    launch: Launch, op: BoundOperation, strides: tuple[int, ...], device: DeviceProfile
) -> chain.Step | None:
    """Return what takes the place of a TRANSPOSE that moves whole rows of real or 8-bit numbers in a chain."""
    source, output = op.input("input"), op.outputs[0]
    *outer, depth = output.dimensions
    kernel = step_kernel(output, device)
    if kernel is None or strides[-1] != 1 or len(outer) > _MOST_OUTER:
        return None
    missing = _MOST_OUTER - len(outer)
    values = *[1] * missing, *outer, *[0] * missing, *strides[:-1]
    return chain.Step(
        kernel,
        chain.COPY,
        source,
        output,
        None,
        programs.rows_of(math.prod(outer), depth),
        (np.array(values, np.int32),),
        {},
        0,
        launch.bytes_moved,
        reads=chain.Reading(source.count // source.dimensions[-1], source.dimensions[-1]),
    )

# SPDX-License-Identifier: Apache-2.0
"""CHANNEL_SHUFFLE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.channel_shuffle import channel_shuffle as shuffle_of

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.CHANNEL_SHUFFLE)
def channel_shuffle(op: BoundOperation, device: DeviceProfile) -> Launch:
    """CHANNEL_SHUFFLE. Any type; kernel strided_copy.cl:strided_copy, the axis seen as [groups, size / groups]."""
    source, shuffle = op.input("input"), shuffle_of(op)
    dims = source.dimensions
    outer, inner = math.prod(dims[: shuffle.axis]), math.prod(dims[shuffle.axis + 1 :])
    members = dims[shuffle.axis] // shuffle.groups
    sizes = outer, members, shuffle.groups, inner
    taken = dims[shuffle.axis] * inner, inner, members * inner, 1
    return strided_copy(sizes, Side(source, taken), Side(op.outputs[0], dense_strides(sizes)), device)

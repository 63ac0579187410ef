# SPDX-License-Identifier: Apache-2.0
"""PACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import Side, strided_copies
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.pack import pack_axis

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.PACK)
def pack(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """PACK. Any type; one strided copy for each input."""
    output, axis = op.outputs[0], pack_axis(op)
    strides = dense_strides(output.dimensions)
    kept = strides[:axis] + strides[axis + 1 :]
    return tuple(
        launch
        for i, part in enumerate(op.all_inputs("input"))
        for launch in strided_copies(
            part.dimensions,
            Side(part, dense_strides(part.dimensions)),
            Side(output, kept, i * strides[axis]),
            device,
        )
    )

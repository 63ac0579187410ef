# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION, SPLIT: one strided copy for each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.kernel import Packed
from gpu_driver.launchers.strided import Side, strided_copy
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.concatenation import concatenation_axis, concatenation_tables, split_axis

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch


@launches(OperationCode.CONCATENATION)
def concatenation(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """CONCATENATION. Any type; 8-bit inputs of other quantisation go through a table. Empty inputs are skipped."""
    output, axis = op.outputs[0], concatenation_axis(op)
    strides = dense_strides(output.dimensions)
    tables: list[Packed | None] = [None] * len(op.all_inputs("input"))
    if output.scale:
        tables = [None if table is None else Packed(table) for table in concatenation_tables(op)]
    launches_, start = [], 0
    for part, table in zip(op.all_inputs("input"), tables, strict=True):
        if part.count:
            destination = Side(output, strides, start * strides[axis])
            source = Side(part, dense_strides(part.dimensions))
            launches_.append(strided_copy(part.dimensions, source, destination, device, table))
        start += part.dimensions[axis]
    return tuple(launches_)


@launches(OperationCode.SPLIT)
def split(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """SPLIT. Any type; one launch per output."""
    source, axis = op.input("input"), split_axis(op)
    strides = dense_strides(source.dimensions)
    return tuple(
        strided_copy(
            part.dimensions,
            Side(source, strides, i * part.dimensions[axis] * strides[axis]),
            Side(part, dense_strides(part.dimensions)),
            device,
        )
        for i, part in enumerate(op.outputs)
    )

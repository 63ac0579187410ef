# SPDX-License-Identifier: Apache-2.0
"""PAD, PAD_V2, MIRROR_PAD."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.launchers.strided import Side, fill, strided_copies, strided_copy
from gpu_driver.operations import launches
from gpu_driver.strides import dense_strides
from nn_runtime.codes import OperationCode
from nn_runtime.operations.pad import MIRROR_REFLECT, mirror_pad_mode, pad_amounts, pad_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_driver.bound import BoundOperand, BoundOperation
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


@launches(OperationCode.MIRROR_PAD)
def mirror_pad(op: BoundOperation, device: DeviceProfile) -> tuple[Launch, ...]:
    """MIRROR_PAD. Any type; the input is copied into the output's middle, which then grows axis by axis."""
    source, output, amounts = op.input("input"), op.outputs[0], pad_amounts(op)
    strides = dense_strides(output.dimensions)
    offset = sum(before * stride for (before, _), stride in zip(amounts, strides, strict=True))
    middle = Side(source, dense_strides(source.dimensions)), Side(output, strides, offset)
    grown = list(source.dimensions)
    commands = list(strided_copies(grown, *middle, device))
    for axis, (before, after) in enumerate(amounts):
        for sizes, taken, written in _mirrored(op, output, grown, axis, offset):
            commands += strided_copies(sizes, taken, written, device)
        offset -= before * strides[axis]
        grown[axis] += before + after
    return tuple(commands)


def _mirrored(
    op: BoundOperation, output: BoundOperand, grown: list[int], axis: int, offset: int
) -> Iterator[tuple[list[int], Side, Side]]:
    """Give sizes, source and destination of what goes before and after the filled block of `grown` at `offset`."""
    strides = dense_strides(output.dimensions)
    step, size = strides[axis], grown[axis]
    border = 1 if mirror_pad_mode(op) == MIRROR_REFLECT else 0
    backwards = (*strides[:axis], -step, *strides[axis + 1 :])
    before, after = pad_amounts(op)[axis]
    for amount, last, first in ((before, before - 1 + border, -before), (after, size - 1 - border, size)):
        if amount:
            sizes = [*grown[:axis], amount, *grown[axis + 1 :]]
            taken = Side(output, backwards, offset + last * step)
            yield sizes, taken, Side(output, strides, offset + first * step)

# SPDX-License-Identifier: Apache-2.0
"""Which operations are folded into a convolution: a PAD before it, an activation or a float residual ADD after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FuseCode, OperationCode
from nn_runtime.operand import FLOAT_TYPES

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation

CONVOLUTIONS = frozenset({OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D})
_WITH_ACTIVATION = CONVOLUTIONS | {OperationCode.FULLY_CONNECTED}
_ACTIVATIONS = {
    OperationCode.RELU: FuseCode.RELU,
    OperationCode.RELU1: FuseCode.RELU1,
    OperationCode.RELU6: FuseCode.RELU6,
}


def foldable_padding(pad: BoundOperation, convolution: BoundOperation) -> tuple[int, int, int, int] | None:
    """Return the (left, right, top, bottom) by which a PAD widens an NHWC convolution's input, or None."""
    if pad.code != OperationCode.PAD or convolution.code not in CONVOLUTIONS:
        return None
    if convolution.inputs[0] is not pad.outputs[0] or convolution.bool_value("layout"):
        return None
    amounts = pad.int_values("paddings")
    if len(amounts) != 8 or any(amounts[:2]) or any(amounts[6:]):
        return None
    top, bottom, left, right = amounts[2:6]
    return left, right, top, bottom


def foldable_activation(first: BoundOperation, activation: BoundOperation) -> FuseCode | None:
    """Return the fuse code that replaces an activation after an operation without one, or None."""
    code = _ACTIVATIONS.get(OperationCode(activation.code)) if activation.code in _ACTIVATIONS else None
    if code is None or first.code not in _WITH_ACTIVATION or first.fuse_code() != FuseCode.NONE:
        return None
    before, after = first.outputs[0], activation.outputs[0]
    same = (before.type, before.scale, before.zero_point) == (after.type, after.scale, after.zero_point)
    return code if same and activation.inputs[0] is before else None


def foldable_residual(first: BoundOperation, add: BoundOperation) -> BoundOperand | None:
    """Return the tensor that an ADD of equal shapes adds to a float convolution without activation, or None."""
    if add.code != OperationCode.ADD or first.code != OperationCode.CONV_2D or first.fuse_code() != FuseCode.NONE:
        return None
    before = first.outputs[0]
    others = [operand for operand in add.inputs[:2] if operand is not before]
    if before.type not in FLOAT_TYPES or len(others) != 1 or others[0].dimensions != before.dimensions:
        return None
    return others[0]

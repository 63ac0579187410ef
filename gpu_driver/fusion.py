# SPDX-License-Identifier: Apache-2.0
"""Which operations are folded by their sizes and for the device: a residual ADD or bounds after a convolution, joined
sources.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpu_driver.convolution.addition import addition_factors
from gpu_driver.strides import block_of
from nn_runtime.codes import FuseCode, OperationCode
from nn_runtime.operand import FLOAT_TYPES
from nn_runtime.operations.concatenation import concatenation_axis

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile

_WITH_BOUNDS = (OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D)


def foldable_residual(first: BoundOperation, add: BoundOperation, device: DeviceProfile) -> BoundOperand | None:
    """Return the tensor that an ADD of equal shapes adds to a convolution, or None.

    A float one has no activation of its own; an 8-bit one runs as a step of a chain, the only code with that ADD.
    """
    if add.code != OperationCode.ADD or first.code != OperationCode.CONV_2D:
        return None
    before = first.outputs[0]
    others = [operand for operand in add.inputs[:2] if operand is not before]
    if len(others) != 1 or others[0].dimensions != before.dimensions:
        return None
    if before.type in FLOAT_TYPES:
        return others[0] if first.fuse_code() == FuseCode.NONE else None
    constant = first.input("filter").is_constant and first.input("bias").is_constant
    exact = addition_factors(before, others[0], add.outputs[0]) is not None
    return others[0] if device.builds_chains and constant and exact and not first.bool_value("layout") else None


def foldable_bounds(first: BoundOperation, following: BoundOperation) -> tuple[float, float] | None:
    """Return the bounds of a convolution's real results with those of a MINIMUM or MAXIMUM of one number, or None."""
    if first.code not in _WITH_BOUNDS or following.code not in (OperationCode.MINIMUM, OperationCode.MAXIMUM):
        return None
    before = first.outputs[0]
    others = [operand for operand in following.inputs if operand is not before]
    if len(others) != 1 or not others[0].is_constant or others[0].count != 1 or before.type not in FLOAT_TYPES:
        return None
    number = float(others[0].data.reshape(-1)[0])
    if math.isnan(number) or len(others[0].dimensions) > len(before.dimensions):
        return None
    low, high = first.fusion.bounds
    if following.code == OperationCode.MINIMUM:
        return min(low, number), min(high, number)
    return max(low, number), max(high, number)


def foldable_parts(concatenation: BoundOperation, gather: BoundOperation) -> tuple[BoundOperand, BoundOperand] | None:
    """Return the two tensors of which a GATHER can take what it would take of their CONCATENATION, or None.

    Where it takes a block, it is a copy, which may be a step of a chain.
    """
    parts, whole = concatenation.all_inputs("input"), concatenation.outputs[0]
    if len(parts) != 2 or concatenation_axis(concatenation) != gather.axis("axis", len(whole.dimensions)):
        return None
    if any(not part.count or (part.scale, part.zero_point) != (whole.scale, whole.zero_point) for part in parts):
        return None
    known = gather.input("indices").value()
    return (parts[0], parts[1]) if known is None or block_of(known.reshape(-1)) is None else None

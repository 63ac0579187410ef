# SPDX-License-Identifier: Apache-2.0
"""PAD and PAD_V2: a constant around the input; MIRROR_PAD: its mirror image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operations.pad import MIRROR_REFLECT, mirror_pad_mode, pad_amounts, pad_value

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.PAD, OperationCode.PAD_V2)
def pad(op: OperationView) -> tuple[Array, ...]:
    """Return the input with a constant around it."""
    return (np.pad(op.array("input"), pad_amounts(op), constant_values=pad_value(op)),)


@computes(OperationCode.MIRROR_PAD)
def mirror_pad(op: OperationView) -> tuple[Array, ...]:
    """Return the input continued by its mirror image, without or with the border element."""
    values, amounts = op.array("input"), pad_amounts(op)
    reflect = mirror_pad_mode(op) == MIRROR_REFLECT
    return (np.pad(values, amounts, mode="reflect") if reflect else np.pad(values, amounts, mode="symmetric"),)

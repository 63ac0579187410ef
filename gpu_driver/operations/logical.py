# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain import elementwise as programs
from gpu_driver.kernel import int32
from gpu_driver.launchers.broadcast import pairwise, refuse_pair
from gpu_driver.operations import launches, supports
from gpu_driver.operations.activation import lookup
from nn_runtime.codes import OperationCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch

supports(OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR)(refuse_pair)


@launches(OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR)
def logical(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOGICAL_AND, LOGICAL_OR. BOOL8, any rank; the lesser or greater truth value, kernel broadcast.cl:extreme."""
    operands, output = (op.input("input0"), op.input("input1")), op.outputs[0]
    either, kernel = op.code == OperationCode.LOGICAL_OR, chain.truth_kernel(device)
    launch = pairwise("extreme", (*operands, output), (int32(either),), device)
    if kernel is None:
        return launch
    function = chain.Function.MAXIMUM if either else chain.Function.MINIMUM
    return programs.joinable(launch, programs.step_of(kernel, output, operands, function, -math.inf, math.inf))


@launches(OperationCode.LOGICAL_NOT)
def logical_not(op: BoundOperation, device: DeviceProfile) -> Launch:
    """LOGICAL_NOT. BOOL8; kernel activation_table.cl:lookup."""
    source, output, kernel = op.input("input"), op.outputs[0], chain.truth_kernel(device)
    launch = lookup(source, output, (np.arange(256) == 0).astype(np.uint8), device)
    return programs.joinable(launch, None if kernel is None else programs.negation_step(kernel, output, source))

# SPDX-License-Identifier: Apache-2.0
"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.chain import elementwise as programs
from gpu_driver.kernel import int32
from gpu_driver.launchers.broadcast import pairwise, refuse_pair
from gpu_driver.operations import launches, supports
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES, dtype_of
from nn_runtime.operations.comparison import COMPARISONS
from nn_runtime.quantization import dequantize

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Launch
    from nn_runtime.operand import Array

_IN_CHAINS = {
    OperationCode.EQUAL: chain.Function.EQUAL,
    OperationCode.NOT_EQUAL: chain.Function.NOT_EQUAL,
    OperationCode.GREATER: chain.Function.GREATER,
    OperationCode.GREATER_EQUAL: chain.Function.GREATER_EQUAL,
}
_TURNED = {OperationCode.LESS: chain.Function.GREATER, OperationCode.LESS_EQUAL: chain.Function.GREATER_EQUAL}
"""The same of the operands in the other order."""

supports(*COMPARISONS)(refuse_pair)


@launches(*COMPARISONS)
def compare(op: BoundOperation, device: DeviceProfile) -> Launch:
    """EQUAL ... LESS_EQUAL. Every type and BOOL8, any rank; kernel broadcast.cl:compare."""
    first, second = op.input("input0"), op.input("input1")
    tables = _places(first, second) if op.data_type in QUANT8_TYPES else None
    number = int32([int(code) for code in COMPARISONS].index(op.code))
    launch = pairwise("compare", (first, second, op.outputs[0]), (number,), device, tables)
    return programs.joinable(launch, _chain_step(op, device))


def _chain_step(op: BoundOperation, device: DeviceProfile) -> chain.Step | None:
    operands, code = (op.input("input0"), op.input("input1")), OperationCode(op.code)
    if op.data_type in FLOAT_TYPES:
        kernel = chain.step_kernel(operands[0], device)
    else:
        kernel = chain.truth_kernel(device) if op.data_type == OperandCode.TENSOR_BOOL8 else None
    if kernel is None:
        return None
    turned = _TURNED.get(code)
    if turned is not None:
        operands = operands[1], operands[0]
    return programs.step_of(kernel, op.outputs[0], operands, turned or _IN_CHAINS[code], -math.inf, math.inf)


def _places(first: BoundOperand, second: BoundOperand) -> tuple[Array, Array] | None:
    """Return the place of each code's real value among all of both operands, so that integers compare like them.

    None where the codes themselves do.
    """
    codes = [np.arange(256, dtype=np.uint8).view(dtype_of(one.type)) for one in (first, second)]
    reals = np.concatenate([dequantize(*one) for one in zip(codes, (first, second), strict=True)])
    places = np.unique(reals, return_inverse=True)[1].astype(np.int32)
    if np.array_equal(places, np.concatenate(codes).astype(np.int32) - int(codes[0].min())):
        return None
    return places[:256], places[256:]

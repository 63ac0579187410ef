# SPDX-License-Identifier: Apache-2.0
"""The kernel of a chain's steps: one for each type of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.convolution import packing
from gpu_driver.convolution.product import ELEMENT_NAMES
from gpu_driver.kernel import Kernel
from nn_runtime.codes import OperandCode
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile

CHAINED = FLOAT_TYPES | {OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED}
"""Types of what chains compute."""


def chain_kernel(types: tuple[tuple[str, str | int], ...], *, dot4: int) -> Kernel:
    """Return the kernel for defines T and QUANTIZED, with products of bytes in a form of common/dot4.h, or without."""
    chunk = packing.BYTES_DEPTH_CHUNK if dot4 else packing.DEPTH_CHUNK
    return Kernel("chain.cl", "chain", (*types, ("DOT4", dot4), ("DEPTH_CHUNK", chunk)))


def common_kernel(types: tuple[tuple[str, str | int], ...], device: DeviceProfile) -> Kernel:
    """Return the kernel of steps that make no difference between its variants: the one that convolutions take too."""
    return chain_kernel(types, dot4=device.dot4 if ("QUANTIZED", 1) in types else 0)


def step_kernel(output: BoundOperand, device: DeviceProfile) -> Kernel | None:
    """Return the kernel of steps with such a result; None where nothing is joined, or nothing of such numbers."""
    if not _joins(device) or output.type not in CHAINED:
        return None
    types = ("T", ELEMENT_NAMES[OperandCode(output.type)]), ("QUANTIZED", int(output.type in QUANT8_TYPES))
    return common_kernel(types, device)


def truth_kernel(device: DeviceProfile) -> Kernel | None:
    """Return the kernel of steps on truth values alone, which are of real numbers; None where nothing is joined."""
    return common_kernel((("T", "float"), ("QUANTIZED", 0)), device) if _joins(device) else None


def _joins(device: DeviceProfile) -> bool:
    return device.builds_chains and device.tuning.chain_steps > 1

# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE and DEQUANTIZE as steps of chains of bytes: most networks of bytes take and give real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.kernel import step_kernel
from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.step import Step, rows_of
from nn_runtime.codes import OperandCode

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from gpu_driver.device_profile import DeviceProfile

LEAST_SCALE, GREATEST_SCALE = 2.0**-80, 2.0**80
"""Between which chain.cl, to which what is less than normal is 0, rounds no quotient otherwise."""
_IMAGES_RANK = 4


def conversion_step(kind: Kind, source: BoundOperand, output: BoundOperand, device: DeviceProfile) -> Step | None:
    """Return what takes the place of a QUANTIZE or DEQUANTIZE in a chain; None where it does not fit in."""
    real, of_bytes, zero = (source, output, "zero_out") if kind == Kind.QUANTIZE else (output, source, "zero_in")
    kernel = step_kernel(of_bytes, device)
    is_taken = real.type == OperandCode.TENSOR_FLOAT32 and LEAST_SCALE <= of_bytes.scale <= GREATEST_SCALE
    if kernel is None or not is_taken or source.is_constant:
        return None
    dimensions = output.dimensions or (1,)
    images = dimensions[0] if len(dimensions) == _IMAGES_RANK else 1
    depth = dimensions[-1]
    scale = np.float32(of_bytes.scale)
    factors = {"factor_product": float(scale), "factor_residual": float(np.float32(1) / scale)}
    return Step(
        kernel,
        kind,
        source,
        output,
        geometry=rows_of(output.count // (images * depth), depth, images),
        values={**factors, zero: of_bytes.zero_point},
        flops=output.count,
        bytes_moved=source.size_bytes + output.size_bytes,
    )

# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.quantization import dequantize, quantize

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.SOFTMAX)
def softmax(op: OperationView) -> tuple[Array, ...]:
    """Return exp(beta * (x - max)) / sum over one axis; quantised values are computed in float32."""
    source, output = op.input("input"), op.outputs[0]
    axis = op.axis("axis", len(op.dimensions("input")), default=-1)
    values = op.array("input")
    real = dequantize(values, source) if source.type in QUANT8_TYPES else values.astype(np.float32)
    exponentials = np.exp(
        (real - real.max(axis=axis, keepdims=True, initial=-np.inf)) * np.float32(op.float_value("beta"))
    )
    result = exponentials / exponentials.sum(axis=axis, keepdims=True)
    if output.type in QUANT8_TYPES:
        return (quantize(result, output),)
    return (result.astype(dtype_of(output.type)),)

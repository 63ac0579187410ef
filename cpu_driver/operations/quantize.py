# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE, DEQUANTIZE, CAST."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime import quantization
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of

if TYPE_CHECKING:
    from nn_runtime.operand import Array, OperandView
    from nn_runtime.operations import OperationView


@computes(OperationCode.QUANTIZE)
def quantize(op: OperationView) -> tuple[Array, ...]:
    """Return clamp(round(x / scale) + zero_point), ties away from zero, in the output's type."""
    return (quantization.quantize(op.array("input"), op.outputs[0]),)


@computes(OperationCode.DEQUANTIZE)
def dequantize(op: OperationView) -> tuple[Array, ...]:
    """Return scale * (q - zero_point) in the output's type, which is computed in float32."""
    real = quantization.dequantize(op.array("input"), op.input("input"))
    return (real.astype(dtype_of(op.outputs[0].type), copy=False),)


@computes(OperationCode.CAST)
def cast(op: OperationView) -> tuple[Array, ...]:
    """Return the raw values in the output's type; to integers truncated and saturated, NaN as 0."""
    values, dtype = op.array("input"), dtype_of(op.outputs[0].type)
    if values.dtype == dtype or dtype.kind == "f":
        return (values.astype(dtype),)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if values.dtype.kind == "f":
        values = np.nan_to_num(values.astype(np.float64), copy=False, posinf=np.inf, neginf=-np.inf)
    elif values.dtype.kind in "iu":  # bounds that its type does not have bound nothing
        own = np.iinfo(values.dtype)
        low, high = max(low, own.min), min(high, own.max)
    return (values.clip(low, high).astype(dtype),)


def requantized(values: Array, source: OperandView, output: OperandView) -> Array:
    """Return values of an input in the quantisation of an output of the same type; real numbers stay as they are."""
    if source.type not in QUANT8_TYPES or (source.scale, source.zero_point) == (output.scale, output.zero_point):
        return values
    return quantization.requantization_table(source, output).take(values.view(np.uint8))

# SPDX-License-Identifier: Apache-2.0
"""Factors of an 8-bit ADD that follows a convolution, as chain.cl takes them: of fixed point, and of float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_driver.byte_pairs import Bytes, by_floats
from nn_runtime.codes import OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperand
    from nn_runtime.quantization import FixedPointMultiplier

_HALF = 1 << 30
_GREATEST_SUM = 2 * 255 << ADD_LEFT_SHIFT


def addition_factors(product: BoundOperand, residual: BoundOperand, output: BoundOperand) -> dict[str, int] | None:
    """Return the fields of a chain's step; None where rounding once is not exact (common/quant.h)."""
    factors = add_parameters(product.scale, residual.scale, output.scale)
    exponent = -factors.output.exponent
    first, second = _addend(factors.input0), _addend(factors.input1)
    if first is None or second is None or not 1 <= exponent < 31:
        return None
    rounding = (1 << (exponent - 1)) + (output.zero_point << exponent)
    if _GREATEST_SUM + abs(rounding) >= 1 << 31:
        return None
    return {
        "multiplier_product": first[0],
        "exponent_product": first[1],
        "multiplier_residual": second[0],
        "exponent_residual": second[1],
        "multiplier_sum": factors.output.mantissa,
        "exponent_sum": exponent,
        "rounding_sum": rounding,
    }


def addition_by_floats(product: BoundOperand, residual: BoundOperand, output: BoundOperand) -> dict[str, int | float]:
    """Return the fields of a chain's step for ADD by float32 arithmetic; none if it is wrong for any pair of bytes."""
    operands = product, residual, output
    if len({dtype_of(one.type) for one in operands}) > 1:
        return {}
    found = by_floats(OperationCode.ADD, *(Bytes.of(one) for one in operands))
    if found is None:
        return {}
    return {"adds_by_floats": 1, **dict(zip(("factor_product", "factor_residual", "offset_sum"), found, strict=True))}


def _addend(factor: FixedPointMultiplier) -> tuple[int, int] | None:
    """Return multiplier and exponent to the right; (0, 0) for one half, which takes no multiplication."""
    if (factor.mantissa, factor.exponent) == (_HALF, 0):
        return 0, 0
    return (factor.mantissa, -factor.exponent) if 1 <= -factor.exponent < 31 else None

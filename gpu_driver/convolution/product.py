# SPDX-License-Identifier: Apache-2.0
"""Operands and geometry of a convolution or a FULLY_CONNECTED, as every kernel that computes one is given them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.convolution import packing
from gpu_driver.convolution.addition import addition_by_floats, addition_factors
from gpu_driver.kernel import float32, int32
from nn_runtime.codes import FuseCode, OperandCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT
from nn_runtime.quantization import activation_range_float, activation_range_quantized, convolution_multipliers
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpu_driver.bound import BoundOperand
    from gpu_driver.kernel import Argument, Scalar
    from nn_runtime.operand import Array
    from nn_runtime.operations.conv import Convolution

ELEMENT_NAMES = {
    OperandCode.TENSOR_FLOAT32: "float",
    OperandCode.TENSOR_FLOAT16: "half",
    OperandCode.TENSOR_QUANT8_ASYMM: "uchar",
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: "char",
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: "char",
}
"""OpenCL type of an element in memory (T of common/types.h)."""

BOUNDED, ADDS_RESIDUAL, ROUNDS_ONCE, ROUNDS_AT_ONCE, ROUNDS_DOWN = 128, 256, 1024, 2048, 4096
"""Flags of common/channel.h."""


@dataclass(frozen=True)
class Product:
    """Operands and geometry of a convolution or a FULLY_CONNECTED, after fusion.

    part_of: the filter of which `weights` are some taps, where it is a part of a larger one's work. own_terms: how many
    products are in a sum, where weights have zeros beside them.
    """

    source: BoundOperand
    weights: BoundOperand
    bias: BoundOperand
    output: BoundOperand
    residual: BoundOperand | None
    activation: FuseCode
    geometry: Convolution
    groups: int = 1
    product: BoundOperand | None = None
    own_activation: FuseCode = FuseCode.NONE
    limits: tuple[float, float] = (-math.inf, math.inf)
    rounds_once: bool = False
    part_of: BoundOperand | None = None
    own_terms: int = 0

    @property
    def quantized(self) -> bool:
        """Whether the data is 8-bit."""
        return self.source.type in QUANT8_TYPES

    @property
    def packable(self) -> bool:
        """Whether weights and bias can be packed, because the model holds them."""
        return self.weights.is_constant and self.bias.is_constant and not self.geometry.nchw

    @property
    def terms(self) -> int:
        """Products in a sum."""
        return self.own_terms or self.weights.count // self.geometry.output_depth

    @property
    def flops(self) -> int:
        """Multiplications and additions, counted apart."""
        return 2 * self.output.count * self.terms

    @property
    def bytes_moved(self) -> int:
        """Bytes of input, weights and output."""
        residual = 0 if self.residual is None else self.residual.size_bytes
        return self.source.size_bytes + self.weights.size_bytes + self.output.size_bytes + residual

    def defines(self) -> tuple[tuple[str, str | int], ...]:
        """Return the defines that every kernel of the family takes."""
        return ("T", ELEMENT_NAMES[OperandCode(self.source.type)]), ("QUANTIZED", int(self.quantized))

    def multipliers(self) -> tuple[Array, Array]:
        """Return mantissas and exponents, one per output channel."""
        mantissas, exponents = convolution_multipliers(self.source, self.weights, self.before)
        depth = self.geometry.output_depth
        return np.broadcast_to(mantissas, depth), np.broadcast_to(exponents, depth)

    @property
    def greatest_input(self) -> int:
        """Greatest magnitude of an 8-bit input minus its zero point."""
        info, zero_point = np.iinfo(dtype_of(self.source.type)), self.source.zero_point
        return max(int(info.max) - zero_point, zero_point - int(info.min))

    def greatest_sums(self) -> npt.NDArray[np.int64]:
        """Return bounds on the magnitudes of 8-bit sums with their bias, by channel; constant weights and bias."""
        weights = self.weights.data
        by_channel = np.moveaxis(weights, -1, 0) if self.geometry.depthwise else weights
        return packing.greatest_sums(by_channel, self.weights.zero_point, self.bias.data, self.greatest_input)

    def rounding(self) -> packing.Rounding:
        """Return whether both roundings of 8-bit results can be done at once; constant weights and bias."""
        return packing.rounding(self.greatest_sums(), self.multipliers()[1], self.before.zero_point)

    def of_sums(self) -> int:
        """Return the flags of common/channel.h.

        8-bit results can be rounded twice at once where known sums are small, all shifts below 0; as if none were
        negative where none is, or where they round once.
        """
        low, high = (bound.item() for bound in self.bounds())
        if not self.quantized:
            return BOUNDED * (not np.isinf(low) or not np.isinf(high)) | ADDS_RESIDUAL * (self.residual is not None)
        is_known = self.weights.is_constant and self.bias.is_constant
        rounds_down = self.rounds_once or low >= self.before.zero_point
        at_once = is_known and self.rounding().at_once
        return ROUNDS_ONCE * self.rounds_once | (ROUNDS_AT_ONCE | ROUNDS_DOWN * rounds_down) * at_once

    def bounds(self) -> tuple[Scalar, Scalar]:
        """Return the bounds of the activation, and of real results those behind it, in the output's domain."""
        if self.quantized:
            activation = self.activation if self.residual is None else self.own_activation
            low, high = activation_range_quantized(activation, self.before)
            return int32(low), int32(high)
        least, greatest = activation_range_float(self.activation)
        floor, ceiling = self.limits
        return float32(min(max(least, floor), ceiling)), float32(min(max(greatest, floor), ceiling))

    @property
    def before(self) -> BoundOperand:
        """What a quantised product is before the residual is added."""
        return self.output if self.product is None else self.product

    def residual_values(self) -> dict[str, int | float]:
        """Return the fields of a chain's step for the residual."""
        if self.residual is None:
            return {}
        if not self.quantized:
            return {"has_residual": 1}
        low, high = activation_range_quantized(self.activation, self.output)
        factors = addition_factors(self.before, self.residual, self.output)
        if factors is None:
            raise ValueError("an addition that fusion.py should have left alone")
        return {
            "has_residual": 1,
            "zero_residual": self.residual.zero_point,
            "left_shift": ADD_LEFT_SHIFT,
            **factors,
            **addition_by_floats(self.before, self.residual, self.output),
            "low_sum": low,
            "high_sum": high,
        }

    def residual_arguments(self) -> tuple[Argument, ...]:
        """Return (residual, has_residual); any buffer of T stands in where there is none."""
        return self.source if self.residual is None else self.residual, int32(self.residual is not None)

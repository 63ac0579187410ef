# SPDX-License-Identifier: Apache-2.0
"""How far the results of two devices may lie apart, by kind of operation and operand type.

The figures are those of AOSP's random graph tests: bias (mean difference), mean square difference, and the greatest
difference of one element. Differences of floats are taken relative to max(1, |wanted|), those of 8- and 16-bit types
in steps of the quantised value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Array


@dataclass(frozen=True)
class Limits:
    """Greatest |bias|, mean square difference and single difference."""

    bias: float
    mean_square: float
    single: float


@dataclass(frozen=True)
class Criterion:
    """Limits by the type of a result; booleans must be equal."""

    name: str
    float32: Limits
    float16: Limits
    quantized: Limits
    integers: Limits = Limits(1, 1, 1)

    def limits(self, code: int) -> Limits:
        """Return the limits for an operand type."""
        if code in (OperandCode.TENSOR_FLOAT32, OperandCode.FLOAT32):
            return self.float32
        if code in (OperandCode.TENSOR_FLOAT16, OperandCode.FLOAT16):
            return self.float16
        if code in (OperandCode.TENSOR_INT32, OperandCode.INT32, OperandCode.UINT32):
            return self.integers
        if code in (OperandCode.TENSOR_BOOL8, OperandCode.BOOL):
            return Limits(0, 0, 0)
        return self.quantized


STRICT = Criterion("strict", Limits(1e-7, 1e-10, 1e-6), Limits(1e-4, 1e-8, 1e-3), Limits(0.1, 0.1, 1))
MEDIUM = Criterion("medium", Limits(1e-6, 1e-8, 1e-5), Limits(1e-3, 1e-5, 1e-2), Limits(1.2, 1.2, 2))
RELAXED = Criterion("relaxed", Limits(3e-5, 1e-6, 1e-3), Limits(5e-3, 1e-3, 1), Limits(1.5, 1.5, 10))
CONVOLUTION = Criterion("convolution", Limits(4e-4, 1e-5, 2e-2), Limits(5e-2, 1e-2, 1), Limits(1.5, 1.5, 10))
SMALL_GRAPH = Criterion("small graph", Limits(4e-4, 1e-5, 1e-2), Limits(5e-2, 1e-2, 1), Limits(2, 2, 12))
LARGE_GRAPH = Criterion("large graph", Limits(1e-2, 1e-4, 1e-1), Limits(1e-1, 5e-2, 1), Limits(2, 2, 12))


def disagreement(criterion: Criterion, code: int, wanted: Array, got: Array) -> str:
    """Return in what `got` breaks the criterion against `wanted` ("" if in nothing); both flat, of type `code`."""
    if wanted.shape != got.shape:
        return f"wanted shape {list(wanted.shape)}, got {list(got.shape)}"
    if wanted.size == 0:
        return ""
    limits = criterion.limits(code)
    wide = wanted.astype(np.float64)
    differences = got.astype(np.float64) - wide
    if wanted.dtype.kind == "f":
        differences /= np.maximum(1.0, np.abs(wide))
    worst = int(np.argmax(np.nan_to_num(np.abs(differences), nan=np.inf)))
    for what, measured, limit in (
        ("difference", abs(differences[worst]), limits.single),
        ("bias", abs(float(differences.mean())), limits.bias),
        ("mean square difference", float(np.square(differences).mean()), limits.mean_square),
    ):
        if not measured <= limit:
            return (
                f"{what} {measured:.3g}, allowed {limit:.3g} ({criterion.name}); "
                f"worst element {worst} of {wanted.size}: wanted {wanted[worst]}, got {got[worst]}"
            )
    return ""

# SPDX-License-Identifier: Apache-2.0
"""The ADD behind a convolution by floats: all pairs of bytes, with the specification's whole-number arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_driver.convolution.addition import addition_by_floats
from nn_runtime.codes import OperandCode
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters
from nn_runtime.quantization import multiply_by_quantized_multiplier


@dataclass(frozen=True)
class Bytes:
    """As much of an operand as the addition looks at."""

    scale: float
    zero_point: int
    type: int = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def test_addition_is_right_for_all_pairs_of_bytes() -> None:
    rng = np.random.default_rng(8)
    values = np.arange(-128, 128)
    found = 0
    for _ in range(20):
        scales = np.float32(rng.uniform(0.02, 0.3, 3)).tolist()
        zeros = rng.integers(-40, 40, 3).tolist()
        one, two, out = (Bytes(scale, zero) for scale, zero in zip(scales, zeros, strict=True))
        fields = addition_by_floats(one, two, out)  # type: ignore[arg-type]
        if not fields:
            continue
        found += 1
        parameters = add_parameters(*scales)
        addends = [
            multiply_by_quantized_multiplier(centred << ADD_LEFT_SHIFT, factor.mantissa, factor.exponent)
            for centred, factor in ((values - zeros[0], parameters.input0), (values - zeros[1], parameters.input1))
        ]
        total = addends[0][:, np.newaxis] + addends[1]
        right = multiply_by_quantized_multiplier(total, parameters.output.mantissa, parameters.output.exponent)
        factors = [np.longdouble(fields[name]) for name in ("factor_product", "factor_residual", "offset_sum")]
        inner = (values * factors[1] + factors[2]).astype(np.float32)
        ours = np.rint(((values - zeros[0])[:, np.newaxis] * factors[0] + inner).astype(np.float32))
        np.testing.assert_array_equal(np.clip(ours, -128, 127), np.clip(right + zeros[2], -128, 127))
    assert found >= 10

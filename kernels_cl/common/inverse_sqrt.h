// SPDX-License-Identifier: Apache-2.0
// inverse_sqrt.h: 1 / sqrt of an integer in fixed point, as TFLite's GetInvSqrtQuantizedMultiplierExp has it.
// Defines  common/quant.h (required, before inclusion)
static inline int saturated_int(long value)
{
    return (int)clamp(value, -2147483648L, 2147483647L);
}

// Mantissa and right shift of 1 / sqrt(value), value >= 0: five Newton-Raphson steps; 0 counts as 1.
static inline int2 inverse_sqrt_multiplier(int value)
{
    if (value <= 1)
        return (int2)(2147483647, 0);
    const int shrunk = value >= 1 << 29;
    const int argument = value >> 2 * shrunk;
    const int pairs = ((int)clz(argument) - 1) / 2 - 1;
    const int half_argument = (argument << 2 * pairs) >> 1;
    const int quarter_argument = rounding_divide_by_pot(half_argument, 1);
    int estimate = 1 << 28;
    for (int step = 0; step < 5; ++step) {
        const int square = saturating_rounding_doubling_high_mul(estimate, estimate);
        const int cube = saturated_int((long)saturating_rounding_doubling_high_mul(square, estimate) << 6);
        const long next = (long)saturating_rounding_doubling_high_mul(estimate, (1 << 28) + (1 << 27))
                          - saturating_rounding_doubling_high_mul(quarter_argument, cube);
        estimate = saturated_int(next << 3);
    }
    const int shift = 11 + shrunk - pairs;
    return (int2)(saturating_rounding_doubling_high_mul(estimate, 1518500250) << max(-shift, 0), max(shift, 0));
}

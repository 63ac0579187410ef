// SPDX-License-Identifier: Apache-2.0
// normalization_quant8.cl: L2_NORMALIZATION of 8-bit numbers, in fixed point.
// Maths    s = sum (q - zero_in)^2, at most 2^31 - 1; 1 / sqrt s = (mantissa, shift) as inverse_sqrt_multipliers of quantization.py
//          y = saturate(rounding_divide_by_pot(high_mul(128 * (q - zero_in), mantissa), shift) + zero_out)
// Tensors  src, dst [outer, axis, inner] of T, dense row-major
// Units    zero_out: 128, or 0 for char
// Defines  T: uchar | char (required)
// Launch   global (>= count), count = outer * inner, local (64); one work-item writes axis values; extra items return
// Exact    yes, as TFLite's reference
#ifndef T
#error "normalization_quant8.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"

static inline int saturated(long value)
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
        const int cube = saturated((long)saturating_rounding_doubling_high_mul(square, estimate) << 6);
        const long next = (long)saturating_rounding_doubling_high_mul(estimate, (1 << 28) + (1 << 27))
                          - saturating_rounding_doubling_high_mul(quarter_argument, cube);
        estimate = saturated(next << 3);
    }
    const int shift = 11 + shrunk - pairs;
    return (int2)(saturating_rounding_doubling_high_mul(estimate, 1518500250) << max(-shift, 0), max(shift, 0));
}

kernel void l2_normalization(global const T *src, global T *dst, int zero_in, int zero_out, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    long sum = 0;
    for (int i = 0; i < axis; ++i) {
        const int centred = LOAD(src, start + i * inner) - zero_in;
        sum += centred * centred;
    }
    const int2 factor = inverse_sqrt_multiplier(saturated(sum));
    for (int i = 0; i < axis; ++i) {
        const int centred = LOAD(src, start + i * inner) - zero_in;
        const int one = saturating_rounding_doubling_high_mul(centred * 128, factor.x);
        STORE_SAT(dst, start + i * inner, rounding_divide_by_pot(one, factor.y) + zero_out);
    }
}

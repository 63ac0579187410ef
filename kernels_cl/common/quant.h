// SPDX-License-Identifier: Apache-2.0
// quant.h: fixed-point multiplication of 32-bit integers by a real number, as gemmlowp and TFLite's reference kernels do it.
// The real number is multiplier * 2^(shift - 31), 2^30 <= multiplier < 2^31 or multiplier = 0 (quantization.py computes the pair).
// Functions ending in 16 do the same to sixteen values; they read vectors as little-endian.
// Source   gemmlowp/fixedpoint.h, the rounding twice form ("double rounding"); once: LiteRT's FULLY_CONNECTED, and L2_NORMALIZATION of INT8.

// round(a * b / 2^31), ties towards plus infinity; b >= 0.
// gemmlowp adds 2^30 or 1 - 2^30 and divides towards zero, which is this shift.
static inline int saturating_rounding_doubling_high_mul(int a, int b)
{
    return (int)(((long)a * b + (1L << 30)) >> 31);
}

// round(x / 2^exponent), ties away from zero; 0 <= exponent <= 31.
static inline int rounding_divide_by_pot(int x, int exponent)
{
    const int mask = (int)((1u << exponent) - 1u);
    const int threshold = (int)((uint)mask >> 1) + (x < 0 ? 1 : 0);
    return (x >> exponent) + ((x & mask) > threshold ? 1 : 0);
}

// x * multiplier * 2^(shift - 31), rounded twice; multiplier >= 0, -31 <= shift <= 31. x << shift wraps as the reference does.
// rounding_divide_by_pot(high product, right) in one shift: floor((floor((p + 2^30) / 2^31) + half - away) / 2^right) is
// floor((p + 2^30 + (half - away) * 2^31) / 2^(31 + right)), where half is 2^(right - 1), or 0 if right is 0, and away is 1 if x < 0 < right:
// the sign of x may stand for the product's, since where they differ the product rounds to 0, and that to 0. No sum reaches 2^63.
static inline int multiply_by_quantized_multiplier(int x, int multiplier, int shift)
{
    const int left = max(shift, 0), right = max(-shift, 0);
    const int scaled = (int)((uint)x << left);
    const long upwards = (long)((1u << right) | 1u) << 30, away = upwards + (shift & INT_MIN);
    return (int)(((long)scaled * multiplier + (scaled < 0 ? away : upwards)) >> (31 + right));
}

// x * multiplier * 2^(shift - 31), rounded once, ties towards plus infinity; -31 <= shift <= 30; wraps.
static inline int multiply_rounding_once(int x, int multiplier, int shift)
{
    const int right = 31 - shift;
    return (int)(((long)x * multiplier + (1L << (right - 1))) >> right);
}

// A channel, for shifts below 0 and sums so small that both roundings can be done at once: |sum| + |rounding| < 2^31, where rounding is
// zero_out * 2^-shift + 2^(-shift - 1), an offset and half a unit of the result. As multiply_and_round16 below; rounds_once: as
// multiply_rounding_once.
typedef struct {
    long added; // at_once_added
    int multiplier, right; // right: -shift - 1
} AtOnce;

static inline long at_once_added(int bias, int multiplier, int shift, int zero_out, int rounds_once)
{
    const long rounding = ((long)zero_out << -shift) + (1L << (-shift - 1));
    return (long)bias * multiplier + (rounding << 31) + (rounds_once ? 0 : 1L << 30);
}

// What `sum` and the bias of at_once_added become, at most zero_out if they are negative: those that must be right then round once.
static inline int scale_down_at_once(int sum, AtOnce channel)
{
    return (int)(((long)sum * channel.multiplier + channel.added) >> 32) >> channel.right;
}

// The same for any sum, in which the bias is and which rounds twice; the bias of at_once_added is 0.
static inline int scale_at_once(int sum, AtOnce channel)
{
    const long added = sum < 0 ? channel.added - (1L << 31) : channel.added;
    return (int)(((long)sum * channel.multiplier + added) >> 32) >> channel.right;
}

// Even and odd lanes are multiplied apart: a 64-bit product of sign-extended lanes is one x86 instruction.
static inline int16 saturating_rounding_doubling_high_mul16(int16 a, int16 b)
{
    const long8 pair_a = as_long8(a), pair_b = as_long8(b);
    const long8 even = ((pair_a << 32) >> 32) * ((pair_b << 32) >> 32) + (1L << 30);
    const long8 odd = (pair_a >> 32) * (pair_b >> 32) + (1L << 30);
    return as_int16(((even >> 31) & 0xffffffffL) | ((odd << 1) & (long)0xffffffff00000000UL));
}

static inline int16 rounding_divide_by_pot16(int16 x, int16 exponent)
{
    const int16 mask = as_int16(((uint16)(1u) << as_uint16(exponent)) - 1u);
    const uint16 threshold = (as_uint16(mask) >> 1) + (as_uint16(x) >> 31);
    // The sign of the difference, not `remainder > threshold`: Oclgrind 21.10 adds comparisons of vectors wrongly.
    return (x >> exponent) + as_int16((threshold - as_uint16(x & mask)) >> 31);
}

static inline int16 multiply_by_quantized_multiplier16(int16 x, int16 multiplier, int16 shift)
{
    const int16 scaled = x << max(shift, (int16)0);
    return rounding_divide_by_pot16(saturating_rounding_doubling_high_mul16(scaled, multiplier), max(-shift, (int16)0));
}

// Both roundings at once, an offset added: multiply_by_quantized_multiplier(x, multiplier, -exponent) + offset, for exponent >= 1,
// where rounding = 2^(exponent - 1) + offset * 2^exponent and |x| + |rounding| < 2^31.
// The sign of x may stand for the product's: they differ only where the product rounds to 0, and then either gives 0.
static inline int16 multiply_and_round16(int16 x, int16 multiplier, int16 exponent, int16 rounding)
{
    const long8 pair_x = as_long8(x), pair_multiplier = as_long8(multiplier), pair_rounding = as_long8(rounding);
    const long8 even = ((pair_x << 32) >> 32) * ((pair_multiplier << 32) >> 32) + (((pair_rounding << 32) >> 1) + (1L << 30));
    const long8 odd = (pair_x >> 32) * (pair_multiplier >> 32) + (((pair_rounding >> 32) << 31) + (1L << 30));
    const int16 product = as_int16(((even >> 31) & 0xffffffffL) | ((odd << 1) & (long)0xffffffff00000000UL));
    return (product + (x >> 31)) >> exponent;
}

// (x * multiplier + rounding * 2^31 + nudge) / 2^(31 + exponent), towards minus infinity, for exponent >= 1 and rounding as above:
// nudge 0: multiply_rounding_once(x, multiplier, -exponent) + offset; nudge 2^30: as multiply_and_round16 for x >= 0, at most offset
// for x < 0.
static inline int16 multiply_and_round_down16(int16 x, int16 multiplier, int16 exponent, int16 rounding, long nudge)
{
    const long8 pair_x = as_long8(x), pair_multiplier = as_long8(multiplier), pair_rounding = as_long8(rounding);
    const long8 pair_right = as_long8(exponent + 31);
    const long8 even = ((pair_x << 32) >> 32) * ((pair_multiplier << 32) >> 32) + (((pair_rounding << 32) >> 1) + nudge);
    const long8 odd = (pair_x >> 32) * (pair_multiplier >> 32) + (((pair_rounding >> 32) << 31) + nudge);
    return as_int16(((even >> (pair_right & 0xffffffffL)) & 0xffffffffL)
                    | ((odd >> ((pair_right >> 32) - 32L)) & (long)0xffffffff00000000UL));
}

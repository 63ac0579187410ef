// SPDX-License-Identifier: Apache-2.0
// softmax.h: what kernels of SOFTMAX share.
// Defines  T, common/types.h; for 8-bit T common/quant.h (required, before inclusion)
// Gives    largest_lane, sum_of_lanes of float16 (real T); largest_lane of int16, half_of, reciprocal, reciprocal16, result_of (8-bit T)
//          KEEP(dst, i, v), KEPT(dst, i, again), KEEP16, KEPT16 (real T): floats wait in the output for their sum; where T would round
//          them, they are computed again

#if T_IS_FLOAT
#if T_IS_HALF
#define KEEP(dst, i, v) (void)(v)
#define KEEP16(dst, i, v) (void)(v)
#define KEPT(dst, i, again) (again)
#define KEPT16(dst, i, again) (again)
#else
#define KEEP(dst, i, v) STORE(dst, i, v)
#define KEEP16(dst, i, v) STORE16(dst, i, v)
#define KEPT(dst, i, again) LOAD(dst, i)
#define KEPT16(dst, i, again) LOAD16(dst, i)
#endif

static inline float largest_lane(float16 v)
{
    const float8 a = fmax(v.lo, v.hi);
    const float4 b = fmax(a.lo, a.hi);
    const float2 c = fmax(b.lo, b.hi);
    return fmax(c.x, c.y);
}

static inline float sum_of_lanes(float16 v)
{
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    const float2 c = b.lo + b.hi;
    return c.x + c.y;
}
#else
static inline int largest_lane(int16 v)
{
    const int8 a = max(v.lo, v.hi);
    const int4 b = max(a.lo, a.hi);
    const int2 c = max(b.lo, b.hi);
    return max(c.x, c.y);
}

static inline int saturating_shift_left(int value, int bits)
{
    return (int)clamp((long)value << bits, -2147483648L, 2147483647L);
}

static inline int16 saturating_shift_left16(int16 value, int bits)
{
    return value > (INT_MAX >> bits) ? (int16)INT_MAX : value < (INT_MIN >> bits) ? (int16)INT_MIN : value << bits;
}

// m / 2 of m = sum / 2^(bit length - 1), 31 fraction bits; sum > 0 of at most 40 bits.
static inline int half_of(long sum, int length)
{
    return (int)(((sum << max(32 - length, 0)) >> max(length - 32, 0)) >> 1);
}

// 1 / m of m / 2, 31 fraction bits: three Newton-Raphson steps; for one and for sixteen.
#define RECIPROCAL(NAME, INTS, HIGH_MUL, SHIFT_LEFT)                    \
    static inline INTS NAME(INTS half_m)                                \
    {                                                                   \
        INTS estimate = 1515870810 + HIGH_MUL(half_m, (INTS)(-1010580540)); \
        for (int step = 0; step < 3; ++step) {                          \
            const INTS error = (1 << 29) - HIGH_MUL(half_m, estimate);  \
            estimate += SHIFT_LEFT(HIGH_MUL(estimate, error), 2);       \
        }                                                               \
        return SHIFT_LEFT(estimate, 1);                                 \
    }
RECIPROCAL(reciprocal, int, saturating_rounding_doubling_high_mul, saturating_shift_left)
RECIPROCAL(reciprocal16, int16, saturating_rounding_doubling_high_mul16, saturating_shift_left16)

// y of one element; a shift past 31 bits leaves nothing.
static inline int result_of(int exponential, int inverse, int shift)
{
    const int product = saturating_rounding_doubling_high_mul(exponential, inverse);
    return shift > 31 ? 0 : min(rounding_divide_by_pot(product, shift), 255);
}
#endif

// SPDX-License-Identifier: Apache-2.0
// softmax.h: what kernels of SOFTMAX share.
// Defines  T, common/types.h, common/lanes.h; for 8-bit T common/quant.h, for others common/exponential.h (required, before inclusion)
// Gives    largest_lane of float16 (real T); largest_lane of int16, half_of, reciprocal, reciprocal16, result_of (8-bit T)
//          softmax_of_rows of real T, by one thread; softmax_columns of 8-bit T: sixteen rows of `axis` < 16
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

#define EXPONENTIAL_OF(x) exp_below_zero16(beta * ((x) - largest))

// A row of fewer than sixteen.
static inline void softmax_lanes(float beta, global const T *src, global T *dst, int axis)
{
    float lanes[16], largest = -INFINITY, sum = 0.0f;
    for (int i = 0; i < 16; ++i)
        lanes[i] = i < axis ? LOAD(src, i) : 0.0f;
    for (int i = 0; i < axis; ++i)
        largest = fmax(largest, lanes[i]);
    const float16 parts = EXPONENTIAL_OF(vload16(0, lanes));
    vstore16(parts, 0, lanes);
    for (int i = 0; i < axis; ++i)
        sum += lanes[i];
    vstore16((1.0f / sum) * parts, 0, lanes);
    for (int i = 0; i < axis; ++i)
        STORE(dst, i, lanes[i]);
}

// Sixteen rows of fewer than sixteen, by the sums of softmax_lanes.
static inline void softmax_columns(float beta, global const T *src, global T *dst, int axis)
{
    float16 parts[15], largest = (float16)-INFINITY, sum = (float16)0.0f;
    for (int i = 0; i < axis; ++i) {
        const float16 column = column_of_rows(src + i, axis);
        largest = column > largest ? column : largest;
    }
    for (int i = 0; i < axis; ++i) {
        parts[i] = EXPONENTIAL_OF(column_of_rows(src + i, axis));
        sum += parts[i];
    }
    const float16 share = 1.0f / sum;
    for (int i = 0; i < axis; ++i)
        store_column(dst + i, axis, share * parts[i]);
}

// A row of sixteen or more. The last vector may overlap the one before it: it is read first, as the output may lie where the input does.
static inline void softmax_vectors(float beta, global const T *src, global T *dst, int axis)
{
    const int whole = axis & ~15, rest = axis - whole;
    const float16 end = LOAD16(src, axis - 16);
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float16 largest16 = end;
    for (int i = 0; i < whole; i += 16)
        largest16 = fmax(largest16, LOAD16(src, i));
    const float largest = largest_lane(largest16);
    float16 sum16 = (float16)0.0f;
    for (int i = 0; i < whole; i += 16) {
        const float16 part = EXPONENTIAL_OF(LOAD16(src, i));
        sum16 += part;
        KEEP16(dst, i, part);
    }
    float16 last = end;
    if (rest) {
        last = EXPONENTIAL_OF(end);
        sum16 += lane < 16 - rest ? (float16)0.0f : last;
    }
    const float share = 1.0f / sum_of_lanes(sum16);
    for (int i = 0; i < whole; i += 16)
        STORE16(dst, i, share * KEPT16(dst, i, EXPONENTIAL_OF(LOAD16(src, i))));
    if (rest)
        STORE16(dst, axis - 16, share * last);
}

static inline void softmax_of_rows(float beta, global const T *src, global T *dst, int axis, int rows)
{
    int row = 0;
    for (; axis < 16 && row + 16 <= rows; row += 16)
        softmax_columns(beta, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
    for (; axis < 16 && row < rows; ++row)
        softmax_lanes(beta, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
    for (; row < rows; ++row)
        softmax_vectors(beta, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
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

#define OF_TABLE(table, i) (int16)(table[i.s0], table[i.s1], table[i.s2], table[i.s3], table[i.s4], table[i.s5], table[i.s6], table[i.s7], \
                                  table[i.s8], table[i.s9], table[i.sa], table[i.sb], table[i.sc], table[i.sd], table[i.se], table[i.sf])

// Sixteen rows of fewer than sixteen, whose sums have at most 24 bits.
static inline void softmax_columns(
    global const int *exponentials, global const int *terms, int offset, global const T *src, global T *dst, int axis)
{
    int16 largest = (int16)-128, sum = (int16)0;
    for (int i = 0; i < axis; ++i)
        largest = max(largest, column_of_rows(src + i, axis));
    for (int i = 0; i < axis; ++i) {
        const int16 below = largest - column_of_rows(src + i, axis);
        sum += OF_TABLE(terms, below);
    }
    const int16 length = 32 - clz(sum), inverse = reciprocal16(as_int16(as_uint16(sum << (32 - length)) >> 1));
    for (int i = 0; i < axis; ++i) {
        const int16 below = largest - column_of_rows(src + i, axis);
        const int16 product = saturating_rounding_doubling_high_mul16(OF_TABLE(exponentials, below), inverse);
        store_column(dst + i, axis, min(rounding_divide_by_pot16(product, length + 3), (int16)255) + offset);
    }
}
#endif

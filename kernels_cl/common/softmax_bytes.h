// SPDX-License-Identifier: Apache-2.0
// softmax_bytes.h: what kernels of SOFTMAX of 8-bit numbers share.
// Defines  T, common/types.h, common/lanes.h, common/quant.h (required, before inclusion)
//          VBMI: 0 (default) | 1: tables are looked up by instructions of AVX512-VBMI; 1 only behind common/bytes.h
// Gives    half_of, reciprocal, result_of; softmax_of_rows, by one thread; dst may be src
// Exact    yes, as TFLite's reference
#ifndef VBMI
#define VBMI 0
#endif

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

// Rows of fewer elements are done sixteen at a time: the 256 results of a row take longer. A term has at most 20 bits, their sums 25.
#define LONG_ROW 24

// Sixteen rows that are not long.
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

// A row that is not long.
static inline void softmax_lanes(
    global const int *exponentials, global const int *terms, int offset, global const T *src, global T *dst, int axis)
{
    int largest = LOAD(src, 0), sum = 0;
    for (int i = 1; i < axis; ++i)
        largest = max(largest, LOAD(src, i));
    for (int i = 0; i < axis; ++i)
        sum += terms[largest - LOAD(src, i)];
    const int length = 32 - (int)clz(sum), inverse = reciprocal(half_of(sum, length));
    for (int i = 0; i < axis; ++i)
        STORE(dst, i, result_of(exponentials[largest - LOAD(src, i)], inverse, length + 3) + offset);
}

// Results of every difference. result_of sixteen at once, both roundings in one shift, as no product is negative: 2 to the power of
// shift + 30 is half a unit of the result, of 31 + shift further bits. As a sum is at least 2^19, exponentials below 2^21 become 0.
static inline void results_of_row(global const int *exponentials, int inverse, int shift, int offset, T16 *results)
{
    const ulong rounding = (1UL << 30) + (1UL << (30 + min(shift, 31))), right = 31 + min(shift, 31);
    const ulong8 factor = (ulong8)((ulong)inverse & 0xffffffffUL); // one instruction multiplies lanes that have 32 bits
    for (int i = 0; i < 256; i += 16) {
        int16 y = (int16)0;
        if (shift <= 31 && exponentials[i] >= 1 << 21) {
            const ulong8 pairs = as_ulong8(vload16(0, exponentials + i));
            const ulong8 even = ((pairs & 0xffffffffUL) * factor + rounding) >> right;
            const ulong8 odd = ((pairs >> 32) * factor + rounding) >> right;
            y = min(as_int16(even | odd << 32), (int16)255);
        }
        results[i / 16] = WIDEN(y + offset, T16);
    }
}

#if VBMI
// What `terms` has, by bytes: planes of[k] hold those of weight 256^k, so that 64 terms are looked up and added by a few instructions.
#define PLANES 3
typedef struct {
    int16 of[PLANES][4];
    int16 ones_and_zeros[2]; // by bytes: what counts of a vector begins between
} TermPlanes;
DEFINE_UNALIGNED(Unaligned64, int16)
DEFINE_UNALIGNED(UnalignedWord, short)

static inline void make_planes(global const int *terms, TermPlanes *planes)
{
    for (int i = 0; i < 16; ++i) {
        const uint16 some = as_uint16(vload16(i, terms));
        _Pragma("unroll") for (int k = 0; k < PLANES; ++k)
            ((uchar16 *)planes->of[k])[i] = WIDEN(some >> 8 * k & 255u, uchar16);
    }
    planes->ones_and_zeros[0] = (int16)-1;
    planes->ones_and_zeros[1] = (int16)0;
}

static inline int16 look_up_private(const int16 *table, int16 x)
{
    const int16 is_lower = pick_bytes((int16)-1, x);
    return (pick_of_128(x, table[0], table[1]) & is_lower) | (pick_of_128(x, table[2], table[3]) & ~is_lower);
}

static inline long sum_of_ints(int16 v)
{
    const int8 a = v.lo + v.hi;
    const int4 b = a.lo + a.hi;
    return (long)b.x + b.y + b.z + b.w;
}

static inline int largest_of_bytes(int16 bytes)
{
    const int16 half_of_them = greatest_bytes(bytes, (int16)(bytes.hi, bytes.lo));
    const int16 quarter = greatest_bytes(half_of_them, half_of_them.s4567012389abcdef);
    return largest_lane(WIDEN(JOIN(JOIN(as_, T), 16)(quarter.s0123), int16));
}

// The first `count` of 64 elements, and `other` in place of those behind; `readable`: elements from src on that may be read.
static inline int16 load_some(global const T *src, int count, int readable, int16 other, const TermPlanes *planes)
{
    if (count >= 64)
        return ((global const Unaligned64 *)src)->value;
    if (readable >= 64) {
        const int16 counts = ((const Unaligned64 *)((const uchar *)planes->ones_and_zeros + 64 - count))->value;
        return (((global const Unaligned64 *)src)->value & counts) | (other & ~counts);
    }
    for (int i = 0; i < count; ++i)
        ((T *)&other)[i] = src[i];
    return other;
}

#define STORE_PART(type)                                                                \
    if (count & sizeof(type)) {                                                         \
        ((global type *)(dst + i))->value = ((const type *)((const T *)&y + i))->value; \
        i += sizeof(type);                                                              \
    }
static inline void store_some(global T *dst, int16 y, int count)
{
    if (count >= 64) {
        ((global Unaligned64 *)dst)->value = y;
        return;
    }
    int i = 0;
    for (; i + 16 <= count; i += 16)
        STORE_SIXTEEN(dst + i, ((const T16 *)&y)[i / 16]);
    STORE_PART(Unaligned8)
    STORE_PART(UnalignedInt)
    STORE_PART(UnalignedWord)
    if (count & 1)
        dst[i] = ((const T *)&y)[i];
}

// A row, 64 elements at a time.
static __attribute__((noinline)) void softmax_row(global const int *exponentials, global const int *terms, const TermPlanes *planes,
    int offset, global const T *src, global T *dst, int axis, int readable)
{
    const int16 least = (int16)(T_IS_SIGNED ? 0x80808080 : 0);
    int16 greatest = least;
    for (int i = 0; i < axis; i += 64)
        greatest = greatest_bytes(greatest, load_some(src + i, axis - i, readable - i, least, planes));
    const int largest = largest_of_bytes(greatest);
    const int16 top = (int16)((largest & 255) * 0x01010101);
    int16 sums[PLANES] = {0, 0, 0}, table[4];
    for (int i = 0; i < axis; i += 64) {
        const int16 below = subtract_bytes(top, load_some(src + i, axis - i, readable - i, top, planes));
        _Pragma("unroll") for (int k = 0; k < PLANES; ++k)
            sums[k] = dot4(sums[k], look_up_private(planes->of[k], below), (int16)0x01010101);
    }
    long sum = sum_of_ints(sums[0]) + (sum_of_ints(sums[1]) << 8) + (sum_of_ints(sums[2]) << 16);
    sum -= (long)(-axis & 63) * terms[0]; // of what stands in for elements of the last 64
    const int length = 64 - (int)clz(sum);
    results_of_row(exponentials, reciprocal(half_of(sum, length)), length + 3, offset, (T16 *)table);
    for (int i = 0; i < axis; i += 64) {
        const int16 below = subtract_bytes(top, load_some(src + i, axis - i, readable - i, top, planes));
        store_some(dst + i, look_up_private(table, below), axis - i);
    }
}
#else
typedef int TermPlanes;
#define make_planes(terms, planes)

static inline int largest_of_row(global const T *src, int axis)
{
    T16 largest = LOAD_SIXTEEN(src + axis - 16);
    for (int i = 0; i + 16 <= axis; i += 16) {
        const T16 x = LOAD_SIXTEEN(src + i);
        largest = x > largest ? x : largest;
    }
    return largest_lane(WIDEN(largest, int16));
}

// A term has at most 20 bits: so many of them stay within 32.
#define MOST_TERMS 4096
static inline long sum_of_terms(global const int *terms, int largest, global const T *src, int axis)
{
    long sum = 0;
    for (int first = 0; first < axis; first += MOST_TERMS) {
        const int last = min(axis - first, MOST_TERMS);
        uint some = 0;
        for (int i = 0; i < last; ++i)
            some += (uint)terms[largest - LOAD(src, first + i)];
        sum += some;
    }
    return sum;
}

// A long row.
static __attribute__((noinline)) void softmax_row(global const int *exponentials, global const int *terms, const TermPlanes *planes,
    int offset, global const T *src, global T *dst, int axis, int readable)
{
    T16 results[16];
    const int largest = largest_of_row(src, axis);
    const long sum = sum_of_terms(terms, largest, src, axis);
    const int length = 64 - (int)clz(sum);
    results_of_row(exponentials, reciprocal(half_of(sum, length)), length + 3, offset, results);
    for (int i = 0; i < axis; ++i)
        dst[i] = ((const T *)results)[largest - LOAD(src, i)];
}

#endif

static inline void softmax_of_rows(
    global const int *exponentials, global const int *terms, int offset, global const T *src, global T *dst, int axis, int rows)
{
    int row = 0;
    TermPlanes planes;
    if (axis >= LONG_ROW)
        make_planes(terms, &planes);
    for (; axis < LONG_ROW && row + 16 <= rows; row += 16)
        softmax_columns(exponentials, terms, offset, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
    for (; axis < LONG_ROW && row < rows; ++row)
        softmax_lanes(exponentials, terms, offset, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
    for (; row < rows; ++row)
        softmax_row(exponentials, terms, &planes, offset, src + (size_t)row * axis, dst + (size_t)row * axis, axis, (rows - row) * axis);
}

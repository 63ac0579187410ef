// SPDX-License-Identifier: Apache-2.0
// reduce.cl: MEAN, REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ALL, REDUCE_ANY over some axes.
// Maths    mean: y = sum x / terms; quantised: multiply_by_quantized_multiplier(sum q - zero_point * terms, factor.x, factor.y) + zero_point
//          mean with REAL: y = factor.x * (sum q - zero_point * terms) / factor.y, each rounded to float
//          reduce: by number 0 sum, 1 product (both float and half; 0 if any factor is, whatever the others), 2 greatest, 3 least
//          (NaN wins), 4 all, 5 any of x != 0 (uchar)
// Tensors  src of T; the kept dimensions are kept_sizes with kept_strides, the reduced ones sizes with strides (outermost first,
//          unused 1), strides in elements of src; dst [count] of T, with REAL of float, dense
//          *_vectors: the innermost dimension is kept and apart: `inner` elements, src and dst
//          *_rows: the innermost dimension is reduced, strides.s3 = 1
//          *_lanes: one dimension is kept, kept_sizes.s3 = count; the innermost one is reduced, strides.s3 = 1
// Units    terms: product of sizes; factor (mantissa, exponent): fixed-point 1 / terms, not used by float; with REAL the bits of a
//          float, the scale of src, and a divisor: terms, or 1 for a sum; per_item: outputs, or vectors of them, of a work-item
// Defines  T: float | half | uchar | char (required); 8-bit types are quantised
//          REAL: 0 (default) | 1: means of 8-bit numbers are real ones
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   mean, reduce: global (>= count), local (64); one work-item per output element
//          *_vectors: global (>= ceil(ceil(inner / 16) / per_item), outer), local (GROUP, 1); one work-item per per_item vectors of sixteen
//          neighbouring work-items may write the same value to the same element; extra items return
//          *_rows: global (ceil(count / per_item)), local (1); sixteen terms at a time, for CPUs
//          *_lanes: global (ceil(count / per_item)), local (1); sixteen outputs at a time, for few terms on CPUs
//          *_groups: global (GROUP * count), local (GROUP); one group per output element, for few outputs of many terms
// Needs    *_vectors: inner >= 16; *_lanes: count >= 16, per_item a multiple of 16; quantised means: terms <= 2^23
// Exact    all but sums and products of float; sums are compensated (Kahan; not by *_lanes), so that many terms lose nothing, as long as
//          they are finite: an infinity stays one
#ifndef T
#error "reduce.cl: define T"
#endif

#ifndef REAL
#define REAL 0
#endif

#include "common/types.h"
#include "common/lanes.h"
#include "common/quant.h"
#include "common/kept.h"
#include "common/pooled.h"
#include "common/greatest.h"

// Element offset of a position counted over `sizes`.
static inline int offset_of(int position, int4 sizes, int4 strides)
{
    int offset = position % sizes.s3 * strides.s3;
    position /= sizes.s3;
    offset += position % sizes.s2 * strides.s2;
    position /= sizes.s2;
    offset += position % sizes.s1 * strides.s1;
    return offset + position / sizes.s1 * strides.s0;
}

#if T_IS_FLOAT
#define COMPUTE_T8 float8
#define COMPUTE_T4 float4
#define ADD_TERM(V, sum, lost, x)         \
    {                                     \
        const V term = (x) - lost;        \
        const V total = sum + term;       \
        lost = select((V)0, (total - sum) - term, isfinite(total)); \
        sum = total;                      \
    }
#define MEET(V, sum, lost, x)             \
    {                                     \
        const V total = sum + (x), back = total - sum; \
        lost += select((V)0, ((total - back) - sum) + (back - (x)), isfinite(total)); \
        sum = total;                      \
    }
#define MEAN_OF(V, SUFFIX, sum) ((sum) / (V)terms)
#else
#define COMPUTE_T8 int8
#define COMPUTE_T4 int4
#define ADD_TERM(V, sum, lost, x) sum += (x)
#define MEET ADD_TERM
#if REAL
#define TO_REAL(v) ((float)(v))
#define TO_REAL16(v) WIDEN(v, float16)
#define MEAN_OF(V, SUFFIX, sum) (as_float(factor.x) * TO_REAL##SUFFIX((sum) - zero_point * terms) / (float)factor.y)
#else
#define MEAN_OF(V, SUFFIX, sum)                                                                                        \
    (multiply_by_quantized_multiplier##SUFFIX((sum) - zero_point * terms, (V)factor.x, (V)factor.y) + zero_point)
#endif
#endif

// What means are, and how they are stored.
#if REAL
typedef struct __attribute__((packed)) {
    float16 value;
} UnalignedFloat16;
#define MEAN_T float
#define STORE_MEAN(p, i, v) ((p)[i] = (v))
#define STORE_MEAN16(p, i, v) (((global UnalignedFloat16 *)((p) + (i)))->value = (v))
#else
#define MEAN_T T
#define STORE_MEAN STORE
#define STORE_MEAN16 STORE16
#endif

// Does STATEMENT with `x` = LOADER(src, from + offset) for all reduced positions; the innermost two dimensions are loops of their own.
#define EVERY_TERM(V, LOADER, from, STATEMENT)                                      \
    for (int outer = 0; outer < sizes.s0 * sizes.s1; ++outer) {                     \
        const int plane = (from) + outer / sizes.s1 * strides.s0 + outer % sizes.s1 * strides.s1; \
        for (int row = 0; row < sizes.s2; ++row)                                    \
            for (int column = 0; column < sizes.s3; ++column) {                     \
                const V x = LOADER(src, plane + row * strides.s2 + column * strides.s3); \
                STATEMENT;                                                          \
            }                                                                       \
    }

// The same in the innermost dimension of stride 1, in `lines`: sixteen terms at a time, then what they came to in `lanes` and those left over.
#define EVERY_SIXTEEN(V, STATEMENT)                                                 \
    for (int line = 0; line < lines; ++line) {                                      \
        const int start = from + (line ? offset_of(line * sizes.s3, sizes, strides) : 0); \
        for (int column = 0; column < (sizes.s3 & ~15); column += 16) {             \
            const V x = LOAD16(src, start + column);                                \
            STATEMENT;                                                              \
        }                                                                           \
    }
#define EVERY_REST(V, STATEMENT)                                                    \
    for (int i = 0; i < 16; ++i) {                                                  \
        const V x = lanes[i];                                                       \
        STATEMENT;                                                                  \
    }                                                                               \
    for (int line = 0; line < lines; ++line) {                                      \
        const int start = from + (line ? offset_of(line * sizes.s3, sizes, strides) : 0); \
        for (int column = sizes.s3 & ~15; column < sizes.s3; ++column) {            \
            const V x = LOAD(src, start + column);                                  \
            STATEMENT;                                                              \
        }                                                                           \
    }

// The terms at one place of sixteen outputs.
#define LOAD_LANES(src, at) column_of_rows((src) + (at), apart)

// Four sums side by side, since a compensated one waits for itself.
#define SUM_OF_FOUR(V, from)                                                                            \
    V sum = (V)0, lost = (V)0, sums[4] = {sum, sum, sum, sum}, losts[4] = {sum, sum, sum, sum};         \
    for (int line = 0; line < sizes.s0 * sizes.s1 * sizes.s2; ++line) {                                 \
        const int start = (from) + offset_of(line * sizes.s3, sizes, strides);                          \
        int column = 0;                                                                                 \
        for (; column + 4 <= sizes.s3; column += 4) {                                                   \
            _Pragma("unroll") for (int k = 0; k < 4; ++k)                                               \
                ADD_TERM(V, sums[k], losts[k], LOAD16(src, start + (column + k) * strides.s3));         \
        }                                                                                               \
        for (; column < sizes.s3; ++column)                                                             \
            ADD_TERM(V, sum, lost, LOAD16(src, start + column * strides.s3));                           \
    }                                                                                                   \
    _Pragma("unroll") for (int k = 0; k < 4; ++k)                                                       \
        ADD_TERM(V, sum, lost, sums[k]);

// Sums of four vectors that lie side by side, so that a line of the cache is read when its neighbours are.
#define SUMS_OF_NEIGHBOURS(from)                                                                        \
    COMPUTE_T16 sums[4] = {0, 0, 0, 0}, losts[4] = {0, 0, 0, 0};                                        \
    for (int line = 0; line < sizes.s0 * sizes.s1 * sizes.s2; ++line) {                                 \
        const int start = (from) + offset_of(line * sizes.s3, sizes, strides);                          \
        for (int column = 0; column < sizes.s3; ++column)                                               \
            _Pragma("unroll") for (int k = 0; k < 4; ++k)                                               \
                ADD_TERM(COMPUTE_T16, sums[k], losts[k], LOAD16(src, start + column * strides.s3 + 16 * k)); \
    }

// The sum of terms whose innermost dimension has stride 1: four times sixteen side by side. Where these sums meet, what rounding took is kept.
static inline COMPUTE_T sum_of_lines(global const T *src, int from, int4 sizes, int4 strides)
{
    COMPUTE_T16 vectors[4] = {0, 0, 0, 0}, losts[4] = {0, 0, 0, 0};
    COMPUTE_T sum = 0, lost = 0;
    for (int line = 0; line < sizes.s0 * sizes.s1 * sizes.s2; ++line) {
        const int start = from + (line ? offset_of(line * sizes.s3, sizes, strides) : 0);
        int column = 0;
        for (; column + 64 <= sizes.s3; column += 64) {
            _Pragma("unroll") for (int k = 0; k < 4; ++k)
                ADD_TERM(COMPUTE_T16, vectors[k], losts[k], LOAD16(src, start + column + 16 * k));
        }
        for (; column + 16 <= sizes.s3; column += 16)
            ADD_TERM(COMPUTE_T16, vectors[0], losts[0], LOAD16(src, start + column));
        for (; column < sizes.s3; ++column)
            ADD_TERM(COMPUTE_T, sum, lost, LOAD(src, start + column));
    }
    COMPUTE_T16 taken = losts[0] + losts[1] + (losts[2] + losts[3]);
    _Pragma("unroll") for (int k = 1; k < 4; ++k)
        MEET(COMPUTE_T16, vectors[0], taken, vectors[k]);
    COMPUTE_T8 sum8 = vectors[0].lo, lost8 = taken.lo + taken.hi;
    MEET(COMPUTE_T8, sum8, lost8, vectors[0].hi);
    COMPUTE_T4 sum4 = sum8.lo, lost4 = lost8.lo + lost8.hi;
    MEET(COMPUTE_T4, sum4, lost4, sum8.hi);
    lost += lost4.x + lost4.y + (lost4.z + lost4.w);
    MEET(COMPUTE_T, sum, lost, sum4.x);
    MEET(COMPUTE_T, sum, lost, sum4.y);
    MEET(COMPUTE_T, sum, lost, sum4.z);
    MEET(COMPUTE_T, sum, lost, sum4.w);
    return sum - lost;
}

// The sums of sixteen rows that are `apart`, whose few terms have stride 1: lane by lane, then of the lanes, all rows at once.
static inline COMPUTE_T16 sums_of_rows(global const T *src, int apart, int4 sizes, int4 strides)
{
    const int lines = sizes.s0 * sizes.s1 * sizes.s2, whole = sizes.s3 & ~15;
    COMPUTE_T16 rest = 0, rows[16];
    for (int line = 0; line < lines; ++line)
        for (int column = whole; column < sizes.s3; ++column)
            rest += column_of_rows(src + offset_of(line * sizes.s3, sizes, strides) + column, apart);
    if (!whole)
        return rest;
    for (int i = 0; i < 16; ++i) {
        rows[i] = 0;
        for (int line = 0; line < lines; ++line)
            for (int column = 0; column < whole; column += 16)
                rows[i] += LOAD16(src, i * apart + offset_of(line * sizes.s3, sizes, strides) + column);
    }
    return sums_of_vectors(rows) + rest;
}

#define SUM(V, LOADER, from)      \
    V sum = (V)0, lost = (V)0;    \
    EVERY_TERM(V, LOADER, from, ADD_TERM(V, sum, lost, x))

kernel void mean(global const T *src, global MEAN_T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms, int2 factor,
    int zero_point, int count)
{
    const int i = (int)get_global_id(0);
    if (i >= count)
        return;
    const int from = offset_of(i, kept_sizes, kept_strides);
    SUM(COMPUTE_T, LOAD, from)
    STORE_MEAN(dst, i, MEAN_OF(COMPUTE_T, , sum));
}

VECTOR_KERNEL void mean_vectors(global const T *src, global MEAN_T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms,
    int2 factor, int zero_point, int inner, int per_item)
{
    const int first = (int)get_global_id(0) * per_item * 16, last = min(first + per_item * 16, inner), row = (int)get_global_id(1);
    const int origin = offset_of(row, kept_sizes, kept_strides);
    int x = first;
#if GROUP == 1
    for (; x + 64 <= last; x += 64) {
        SUMS_OF_NEIGHBOURS(origin + x)
        _Pragma("unroll") for (int k = 0; k < 4; ++k)
            STORE_MEAN16(dst, row * inner + x + 16 * k, MEAN_OF(COMPUTE_T16, 16, sums[k]));
    }
#endif
    for (; x < last; x += 16) {
        const int at = min(x, inner - 16);
        SUM_OF_FOUR(COMPUTE_T16, origin + at)
        STORE_MEAN16(dst, row * inner + at, MEAN_OF(COMPUTE_T16, 16, sum));
    }
}

TILE_KERNEL void mean_rows(global const T *src, global MEAN_T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms,
    int2 factor, int zero_point, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item;
    for (int i = first; i < min(first + per_item, count); ++i) {
        const int from = offset_of(i, kept_sizes, kept_strides);
        STORE_MEAN(dst, i, MEAN_OF(COMPUTE_T, , sum_of_lines(src, from, sizes, strides)));
    }
}

TILE_KERNEL void mean_lanes(global const T *src, global MEAN_T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms,
    int2 factor, int zero_point, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item, apart = kept_strides.s3;
    for (int i = first; i < min(first + per_item, count); i += 16) {
        const int at = min(i, count - 16);
        const COMPUTE_T16 sums = sums_of_rows(src + at * apart, apart, sizes, strides);
        STORE_MEAN16(dst, at, MEAN_OF(COMPUTE_T16, 16, sums));
    }
}

#if GROUP > 1
// The same by a group, of any strides: every work-item leaves a sum of its own, and behind a barrier one of them lets all meet.
static inline void sum_of_item(
    global const T *src, int from, int4 sizes, int4 strides, int terms, local COMPUTE_T *sums, local COMPUTE_T *losts)
{
    const int item = (int)get_local_id(0);
    COMPUTE_T sum = 0, lost = 0;
    for (int i = item; i < terms; i += GROUP)
        ADD_TERM(COMPUTE_T, sum, lost, LOAD(src, from + offset_of(i, sizes, strides)));
    sums[item] = sum;
    losts[item] = lost;
}

static inline COMPUTE_T sum_of_group(local const COMPUTE_T *sums, local const COMPUTE_T *losts)
{
    COMPUTE_T sum = sums[0], lost = losts[0];
    for (int i = 1; i < GROUP; ++i) {
        lost += losts[i];
        MEET(COMPUTE_T, sum, lost, sums[i]);
    }
    return sum - lost;
}

VECTOR_KERNEL void mean_groups(global const T *src, global MEAN_T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms,
    int2 factor, int zero_point)
{
    local COMPUTE_T sums[GROUP], losts[GROUP];
    const int output = (int)get_group_id(0);
    sum_of_item(src, offset_of(output, kept_sizes, kept_strides), sizes, strides, terms, sums, losts);
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0)
        STORE_MEAN(dst, output, MEAN_OF(COMPUTE_T, , sum_of_group(sums, losts)));
}
#endif

#define SUM_OF 0
#define PRODUCT_OF 1
#define GREATEST_OF 2
#define LEAST_OF 3
#define ALL_OF 4

#if T_IS_FLOAT
#define REDUCE(V, EVERY)                                                           \
    V result = (V)0, lost = (V)0;                                                  \
    if (operation == SUM_OF) {                                                     \
        EVERY(V, ADD_TERM(V, result, lost, x))                                     \
    } else if (operation == PRODUCT_OF) {                                          \
        result = (V)1;                                                             \
        EVERY(V, result = x == (V)0 || result == (V)0 ? (V)0 : result * x)         \
    } else if (operation == GREATEST_OF) {                                         \
        result = (V)-INFINITY;                                                     \
        EVERY(V, result = x > result || x != x ? x : result)                       \
    } else {                                                                       \
        result = (V)INFINITY;                                                      \
        EVERY(V, result = x < result || x != x ? x : result)                       \
    }
#else
#define REDUCE(V, EVERY)                                                           \
    V result = (V)0;                                                               \
    if (operation == GREATEST_OF) {                                                \
        result = (V)-128;                                                          \
        EVERY(V, result = max(result, x))                                          \
    } else if (operation == LEAST_OF) {                                            \
        result = (V)255;                                                           \
        EVERY(V, result = min(result, x))                                          \
    } else if (operation == ALL_OF) {                                              \
        result = (V)1;                                                             \
        EVERY(V, result = min(result, x))                                          \
    } else {                                                                       \
        EVERY(V, result = max(result, min(x, (V)1)))                               \
    }
#endif

// The least is the greatest of flipped numbers, flipped: real ones negated, integers complemented.
#if T_IS_FLOAT
#define FLIPPED(V, x, flip) JOIN(as_, JOIN(KEPT_T, V))(JOIN(as_int, V)(x) ^ (flip))
#define FLIPS INT_MIN
#else
#define FLIPPED(V, x, flip) (JOIN(KEPT_T, V))((x) ^ (JOIN(KEPT_T, V))(flip))
#define FLIPS -1
#endif
#define IS_EXTREME(operation) ((operation) >= GREATEST_OF)
#define FLIP_OF(operation) ((operation) == LEAST_OF || (operation) == ALL_OF ? FLIPS : 0)
#define RESULT_OF(V, y, flip, operation) \
    ((operation) >= ALL_OF ? min(FLIPPED(V, y, flip), (JOIN(KEPT_T, V))1) : FLIPPED(V, y, flip))

typedef struct {
    KEPT_T16 found; // flipped
    int16 sizes; // of real numbers: of which one above NO_NAN was none
} Extreme;

// The greatest of flipped vectors of sixteen; in every line lie `count` of them `step` elements apart, and one begins at `last`, or none
// if that is negative. Four are compared side by side, since a comparison waits for the one before.
static __attribute__((noinline)) Extreme extreme_of_lines(
    global const T *src, int4 sizes, int4 strides, int count, int step, int last, int flip)
{
    KEPT_T16 found[4];
    int16 noted = (int16)0;
    _Pragma("unroll") for (int k = 0; k < 4; ++k)
        found[k] = (KEPT_T16)LOWEST;
#define COMPARE(k, at)                                                  \
    {                                                                   \
        const KEPT_T16 x = FLIPPED(16, LOAD_KEPT16(line, at), flip);    \
        found[k] = x > found[k] ? x : found[k];                         \
        NOTE_SIZES(noted, x);                                           \
    }
    for (int i = 0; i < sizes.s0 * sizes.s1 * sizes.s2; ++i) {
        global const T *line = src + offset_of(i * sizes.s3, sizes, strides);
        int at = 0;
        for (; at + 4 <= count; at += 4)
            _Pragma("unroll") for (int k = 0; k < 4; ++k)
                COMPARE(k, (at + k) * step);
        for (; at < count; ++at)
            COMPARE(0, at * step);
        if (last >= 0)
            COMPARE(0, last);
    }
    _Pragma("unroll") for (int k = 1; k < 4; ++k)
        found[0] = found[k] > found[0] ? found[k] : found[0];
    return (Extreme){found[0], noted};
}

static inline KEPT_T greatest_lane(Extreme e)
{
    const JOIN(KEPT_T, 8) a = e.found.lo > e.found.hi ? e.found.lo : e.found.hi;
    const JOIN(KEPT_T, 4) b = a.lo > a.hi ? a.lo : a.hi;
    const JOIN(KEPT_T, 2) c = b.lo > b.hi ? b.lo : b.hi;
#if T_IS_FLOAT
    if (any(e.sizes > (int16)NO_NAN))
        return NAN;
#endif
    return c.x > c.y ? c.x : c.y;
}

// The same of sixteen rows that are `apart`, each by vectors before the lanes of all rows.
static inline KEPT_T16 greatest_of_rows(global const T *src, int apart, int4 sizes, int4 strides, int flip)
{
    COMPUTE_T16 rows[16];
    for (int i = 0; i < 16; ++i) {
        KEPT_T16 found = (KEPT_T16)LOWEST;
        int16 noted = (int16)0;
        for (int line = 0; line < sizes.s0 * sizes.s1 * sizes.s2; ++line) {
            global const T *start = src + i * apart + offset_of(line * sizes.s3, sizes, strides);
            for (int column = 0; column < sizes.s3; column += 16) {
                const KEPT_T16 x = FLIPPED(16, LOAD_KEPT16(start, min(column, sizes.s3 - 16)), flip);
                found = x > found ? x : found;
                NOTE_SIZES(noted, x);
            }
        }
        rows[i] = WIDEN(OR_NAN(noted, found), COMPUTE_T16);
    }
    transpose16(rows);
    _Pragma("unroll") for (int half_of = 8; half_of > 0; half_of /= 2)
        _Pragma("unroll") for (int i = 0; i < half_of; ++i)
            rows[i] = rows[i] > rows[i + half_of] || rows[i] != rows[i] ? rows[i] : rows[i + half_of];
    return WIDEN(rows[0], KEPT_T16);
}

#define EVERY_ELEMENT(V, STATEMENT) EVERY_TERM(V, LOAD, from, STATEMENT)
#define EVERY_VECTOR(V, STATEMENT) EVERY_TERM(V, LOAD16, from, STATEMENT)
#define EVERY_LANE(V, STATEMENT) EVERY_TERM(V, LOAD_LANES, from, STATEMENT)
#define EVERY_OF_ITEM(V, STATEMENT)                                    \
    for (int i = item; i < terms; i += GROUP) {                        \
        const V x = LOAD(src, from + offset_of(i, sizes, strides));    \
        STATEMENT;                                                     \
    }
#define EVERY_ITEM(V, STATEMENT)        \
    for (int i = 0; i < GROUP; ++i) {   \
        const V x = shared[i];          \
        STATEMENT;                      \
    }

kernel void reduce(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms,
    int operation, int count)
{
    const int i = (int)get_global_id(0);
    if (i >= count)
        return;
    const int from = offset_of(i, kept_sizes, kept_strides);
    REDUCE(COMPUTE_T, EVERY_ELEMENT)
    STORE(dst, i, result);
}

static inline void reduce_vector(global const T *src, global T *dst, int from, int4 sizes, int4 strides, int operation)
{
#if T_IS_FLOAT
    if (operation == SUM_OF) {
        SUM_OF_FOUR(COMPUTE_T16, from)
        STORE16(dst, 0, sum);
        return;
    }
#endif
    if (IS_EXTREME(operation)) {
        const int flip = FLIP_OF(operation);
        const Extreme e = extreme_of_lines(src + from, sizes, strides, sizes.s3, strides.s3, -1, flip);
        STORE_KEPT16(dst, 0, RESULT_OF(16, OR_NAN(e.sizes, e.found), flip, operation));
        return;
    }
    REDUCE(COMPUTE_T16, EVERY_VECTOR)
    STORE16(dst, 0, result);
}

#if GROUP == 1
// Four vectors side by side of an operation that is an extreme or a sum.
static inline void reduce_neighbours(global const T *src, global T *dst, int from, int4 sizes, int4 strides, int operation)
{
#if T_IS_FLOAT
    if (operation == SUM_OF) {
        SUMS_OF_NEIGHBOURS(from)
        _Pragma("unroll") for (int k = 0; k < 4; ++k)
            STORE16(dst, 16 * k, sums[k]);
        return;
    }
#endif
    const int flip = FLIP_OF(operation);
    KEPT_T16 found[4];
    int16 noted[4] = {0, 0, 0, 0};
    _Pragma("unroll") for (int k = 0; k < 4; ++k)
        found[k] = (KEPT_T16)LOWEST;
    for (int i = 0; i < sizes.s0 * sizes.s1 * sizes.s2; ++i) {
        global const T *line = src + from + offset_of(i * sizes.s3, sizes, strides);
        for (int at = 0; at < sizes.s3; ++at, line += strides.s3)
            _Pragma("unroll") for (int k = 0; k < 4; ++k) {
                const KEPT_T16 x = FLIPPED(16, LOAD_KEPT16(line, 16 * k), flip);
                found[k] = x > found[k] ? x : found[k];
                NOTE_SIZES(noted[k], x);
            }
    }
    _Pragma("unroll") for (int k = 0; k < 4; ++k)
        STORE_KEPT16(dst, 16 * k, RESULT_OF(16, OR_NAN(noted[k], found[k]), flip, operation));
}
#endif

VECTOR_KERNEL void reduce_vectors(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides,
    int terms, int operation, int inner, int per_item)
{
    const int first = (int)get_global_id(0) * per_item * 16, last = min(first + per_item * 16, inner), line = (int)get_global_id(1);
    const int origin = offset_of(line, kept_sizes, kept_strides);
    int x = first;
#if GROUP == 1
    if ((T_IS_FLOAT && operation == SUM_OF) || IS_EXTREME(operation))
        for (; x + 64 <= last; x += 64)
            reduce_neighbours(src, dst + line * inner + x, origin + x, sizes, strides, operation);
#endif
    for (; x < last; x += 16) {
        const int at = min(x, inner - 16);
        reduce_vector(src, dst + line * inner + at, origin + at, sizes, strides, operation);
    }
}

TILE_KERNEL void reduce_rows(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides,
    int terms, int operation, int count, int per_item)
{
    const int lines = sizes.s0 * sizes.s1 * sizes.s2, first = (int)get_global_id(0) * per_item;
    for (int i = first; i < min(first + per_item, count); ++i) {
        const int from = offset_of(i, kept_sizes, kept_strides);
#if T_IS_FLOAT
        if (operation == SUM_OF) {
            STORE(dst, i, sum_of_lines(src, from, sizes, strides));
            continue;
        }
#endif
        if (IS_EXTREME(operation) && sizes.s3 >= 16) {
            const int flip = FLIP_OF(operation), last = sizes.s3 % 16 ? sizes.s3 - 16 : -1;
            const KEPT_T y = greatest_lane(extreme_of_lines(src + from, sizes, strides, sizes.s3 / 16, 16, last, flip));
            STORE(dst, i, RESULT_OF(, y, flip, operation));
            continue;
        }
        COMPUTE_T lanes[16];
        {
            REDUCE(COMPUTE_T16, EVERY_SIXTEEN)
            vstore16(result, 0, lanes);
        }
        REDUCE(COMPUTE_T, EVERY_REST)
        STORE(dst, i, result);
    }
}

TILE_KERNEL void reduce_lanes(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides,
    int terms, int operation, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item, apart = kept_strides.s3;
    for (int i = first; i < min(first + per_item, count); i += 16) {
        const int at = min(i, count - 16), from = at * apart;
#if T_IS_FLOAT
        if (operation == SUM_OF) {
            STORE16(dst, at, sums_of_rows(src + from, apart, sizes, strides));
            continue;
        }
#endif
        if (IS_EXTREME(operation) && sizes.s3 >= 16) {
            const int flip = FLIP_OF(operation);
            STORE_KEPT16(dst, at, RESULT_OF(16, greatest_of_rows(src + from, apart, sizes, strides, flip), flip, operation));
            continue;
        }
        REDUCE(COMPUTE_T16, EVERY_LANE)
        STORE16(dst, at, result);
    }
}

#if GROUP > 1
VECTOR_KERNEL void reduce_groups(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides,
    int terms, int operation)
{
    local COMPUTE_T shared[GROUP];
#if T_IS_FLOAT
    local COMPUTE_T losts[GROUP];
#endif
    const int item = (int)get_local_id(0), output = (int)get_group_id(0);
    const int from = offset_of(output, kept_sizes, kept_strides);
    // One barrier for all: PoCL 3.0 takes one in a branch for another.
#if T_IS_FLOAT
    if (operation == SUM_OF)
        sum_of_item(src, from, sizes, strides, terms, shared, losts);
    else
#endif
    {
        REDUCE(COMPUTE_T, EVERY_OF_ITEM)
        shared[item] = result;
    }
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
#if T_IS_FLOAT
    if (item == 0 && operation == SUM_OF) {
        STORE(dst, output, sum_of_group(shared, losts));
        return;
    }
#endif
    if (item == 0) {
        REDUCE(COMPUTE_T, EVERY_ITEM)
        STORE(dst, output, result);
    }
}
#endif

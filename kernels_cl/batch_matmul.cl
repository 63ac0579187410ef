// SPDX-License-Identifier: Apache-2.0
// batch_matmul.cl: BATCH_MATMUL: products of pairs of matrices, either side transposed or not.
// Maths    y[b,r,c] = sum over d of lhs[b,r,d] * rhs[b,d,c]; int: wraps
//          quantised: clamp(multiply_by_quantized_multiplier(sum of (lhs - zeros.x) * (rhs - zeros.y), factor.x, factor.y) + zeros.z)
// Tensors  lhs, rhs, dst of T; dst [batches, rows, columns] dense
// Units    strides in elements: left (batch, r, d, 0), right (batch, d, c, 0); sizes (batches, rows, columns, depth)
//          zeros: zero points (lhs, rhs, dst, 0); factor (mantissa, exponent); used by char only
// Defines  T: float | half | char | int (required); char is quantised
//          TILE_ROWS: 8 (default) | 1 | 2 | 4: rows of a tile; fewer where there are no more
// Launch   batch_matmul: global (>= batches * rows * columns), local (64); one work-item per element, columns fastest
//          batch_matmul_tiles: global (ceil(columns / TILE_COLUMNS), ceil(rows / TILE_ROWS), batches), local (1, 1, 1); one work-item per
//          tile, for CPUs; neighbours may write the same value to the same element
//          batch_matmul_dots: global (ceil(columns / 16), batches), local (1, 1); one work-item per sixteen columns, for few rows on CPUs;
//          neighbours as above
//          extra items return
// Needs    batch_matmul_tiles: columns >= 16, right.z = 1; batch_matmul_dots: columns >= 16, left.z = right.y = 1
// Exact    quantised and int: yes; float: fused multiply-adds in the order of d, of batch_matmul_dots sixteen sums of every sixteenth d
#ifndef T
#error "batch_matmul.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/lanes.h"

#ifndef TILE_ROWS
#define TILE_ROWS 8 // accumulators of a tile: registers, twice over for half of AVX-512's
#endif
#define TILE_VECTORS (TILE_ROWS > 4 ? 1 : TILE_ROWS > 2 ? 2 : 4) // since a sum waits for itself
#define TILE_COLUMNS (16 * TILE_VECTORS)

#if T_IS_FLOAT
#define MULTIPLY_ADD(SUFFIX, a, b, sum) fma(a, b, sum)
#define RESULT(V, SUFFIX, sum) (sum)
#define CENTRED(x, zero) (x)
#elif TYPE_NUMBER == TYPE_NUMBER_int
#define MULTIPLY_ADD(SUFFIX, a, b, sum) as_int##SUFFIX(as_uint##SUFFIX(a) * as_uint##SUFFIX(b) + as_uint##SUFFIX(sum))
#define RESULT(V, SUFFIX, sum) (sum)
#define CENTRED(x, zero) (x)
#else
#define MULTIPLY_ADD(SUFFIX, a, b, sum) ((a) * (b) + (sum))
#define RESULT(V, SUFFIX, sum)                                                                                             \
    clamp(multiply_by_quantized_multiplier##SUFFIX(sum, (V)factor.x, (V)factor.y) + zeros.z, (V)-128, (V)127)
#define CENTRED(x, zero) ((x) - (zero))
#endif

kernel void batch_matmul(
    global const T *lhs, global const T *rhs, global T *dst, int4 left, int4 right, int4 sizes, int4 zeros, int2 factor)
{
    const int item = (int)get_global_id(0), rows = sizes.y, columns = sizes.z;
    if (item >= sizes.x * rows * columns)
        return;
    const int c = item % columns, r = item / columns % rows, b = item / columns / rows;
    int from0 = b * left.x + r * left.y, from1 = b * right.x + c * right.z;
    COMPUTE_T sum = 0;
    for (int d = 0; d < sizes.w; ++d, from0 += left.z, from1 += right.y)
        sum = MULTIPLY_ADD(, CENTRED(LOAD(lhs, from0), zeros.x), CENTRED(LOAD(rhs, from1), zeros.y), sum);
    STORE(dst, item, RESULT(COMPUTE_T, , sum));
}

#define EACH_ROW _Pragma("unroll") for (int k = 0; k < TILE_ROWS; ++k)
#define EACH_VECTOR _Pragma("unroll") for (int v = 0; v < TILE_VECTORS; ++v)

TILE_KERNEL void batch_matmul_tiles(
    global const T *lhs, global const T *rhs, global T *dst, int4 left, int4 right, int4 sizes, int4 zeros, int2 factor)
{
    const int rows = sizes.y, columns = sizes.z, b = (int)get_global_id(2);
    const int first_column = (int)get_global_id(0) * TILE_COLUMNS, first_row = (int)get_global_id(1) * TILE_ROWS;
    COMPUTE_T16 sums[TILE_ROWS][TILE_VECTORS], lines[TILE_VECTORS];
    int starts[TILE_ROWS], at[TILE_VECTORS], d = 0;
    EACH_VECTOR at[v] = min(first_column + 16 * v, columns - 16);
    EACH_ROW {
        EACH_VECTOR sums[k][v] = (COMPUTE_T16)0;
        starts[k] = b * left.x + min(first_row + k, rows - 1) * left.y;
    }
    rhs += b * right.x;
#if T_IS_HALF
    // Sixteen of a row are converted at once, where they lie side by side.
    for (; left.z == 1 && d + 16 <= sizes.w; d += 16) {
        float values[TILE_ROWS][16];
        EACH_ROW vstore16(LOAD16(lhs, starts[k] + d), 0, values[k]);
        for (int i = 0; i < 16; ++i, rhs += right.y) {
            EACH_VECTOR lines[v] = LOAD16(rhs, at[v]);
            EACH_ROW EACH_VECTOR sums[k][v] = fma((float16)values[k][i], lines[v], sums[k][v]);
        }
    }
#endif
    for (; d < sizes.w; ++d, rhs += right.y) {
        EACH_VECTOR lines[v] = CENTRED(LOAD16(rhs, at[v]), zeros.y);
        EACH_ROW {
            const COMPUTE_T16 value = (COMPUTE_T16)CENTRED(LOAD(lhs, starts[k] + d * left.z), zeros.x);
            EACH_VECTOR sums[k][v] = MULTIPLY_ADD(16, value, lines[v], sums[k][v]);
        }
    }
    EACH_ROW {
        if (first_row + k < rows)
            EACH_VECTOR STORE16(dst, (b * rows + first_row + k) * columns + at[v], RESULT(COMPUTE_T16, 16, sums[k][v]));
    }
}

#if T_IS_FLOAT
#define SUM_OF_LANES sum_of_lanes
#else
static inline int sum_of_lanes_wrapping(int16 v)
{
    const uint8 a = as_uint8(v.lo) + as_uint8(v.hi);
    const uint4 b = a.lo + a.hi;
    const uint2 c = b.lo + b.hi;
    return (int)(c.x + c.y);
}
#define SUM_OF_LANES sum_of_lanes_wrapping
#endif
#define AT_ONCE 4 // columns, since a sum waits for itself

// The products of a row and AT_ONCE rows of the right side, `apart` from each other.
static inline void dots(global const T *x, global const T *y, int apart, int depth, int4 zeros, COMPUTE_T *results)
{
    COMPUTE_T16 sums[AT_ONCE];
    COMPUTE_T rests[AT_ONCE];
    _Pragma("unroll") for (int k = 0; k < AT_ONCE; ++k)
    {
        sums[k] = (COMPUTE_T16)0;
        rests[k] = 0;
    }
    int d = 0;
    for (; d + 16 <= depth; d += 16) {
        const COMPUTE_T16 value = CENTRED(LOAD16(x, d), zeros.x);
        _Pragma("unroll") for (int k = 0; k < AT_ONCE; ++k)
            sums[k] = MULTIPLY_ADD(16, value, CENTRED(LOAD16(y, k * apart + d), zeros.y), sums[k]);
    }
    for (; d < depth; ++d) {
        const COMPUTE_T value = CENTRED(LOAD(x, d), zeros.x);
        _Pragma("unroll") for (int k = 0; k < AT_ONCE; ++k)
            rests[k] = MULTIPLY_ADD(, value, CENTRED(LOAD(y, k * apart + d), zeros.y), rests[k]);
    }
    _Pragma("unroll") for (int k = 0; k < AT_ONCE; ++k)
        results[k] = MULTIPLY_ADD(, (COMPUTE_T)1, SUM_OF_LANES(sums[k]), rests[k]);
}

TILE_KERNEL void batch_matmul_dots(
    global const T *lhs, global const T *rhs, global T *dst, int4 left, int4 right, int4 sizes, int4 zeros, int2 factor)
{
    const int rows = sizes.y, columns = sizes.z, b = (int)get_global_id(1);
    const int c = min((int)get_global_id(0) * 16, columns - 16);
    for (int r = 0; r < rows; ++r) {
        COMPUTE_T sums[16];
        for (int k = 0; k < 16; k += AT_ONCE)
            dots(lhs + b * left.x + r * left.y, rhs + b * right.x + (c + k) * right.z, right.z, sizes.w, zeros, sums + k);
        STORE16(dst, (b * rows + r) * columns + c, RESULT(COMPUTE_T16, 16, vload16(0, sums)));
    }
}

// SPDX-License-Identifier: Apache-2.0
// batch_matmul.cl: BATCH_MATMUL: products of pairs of matrices, either side transposed or not.
// Maths    y[b,r,c] = sum over d of lhs[b,r,d] * rhs[b,d,c]; int: wraps
//          quantised: clamp(multiply_by_quantized_multiplier(sum of (lhs - zeros.x) * (rhs - zeros.y), factor.x, factor.y) + zeros.z)
// Tensors  lhs, rhs, dst of T; dst [batches, rows, columns] dense
// Units    strides in elements: left (batch, r, d, 0), right (batch, d, c, 0); sizes (batches, rows, columns, depth)
//          zeros: zero points (lhs, rhs, dst, 0); factor (mantissa, exponent); used by char only
// Defines  T: float | half | char | int (required); char is quantised
// Launch   batch_matmul: global (>= batches * rows * columns), local (64); one work-item per element, columns fastest
//          batch_matmul_tiles: global (ceil(columns / 16), ceil(rows / TILE_ROWS), batches), local (1, 1, 1); one work-item per tile,
//          for CPUs; neighbours may write the same value to the same element
//          extra items return
// Needs    batch_matmul_tiles: columns >= 16, right.z = 1
// Exact    quantised and int: yes; float: fused multiply-adds in the order of d
#ifndef T
#error "batch_matmul.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"

#define TILE_ROWS 8 // accumulators of a tile: registers, twice over for half of AVX-512's

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

TILE_KERNEL void batch_matmul_tiles(
    global const T *lhs, global const T *rhs, global T *dst, int4 left, int4 right, int4 sizes, int4 zeros, int2 factor)
{
    const int rows = sizes.y, columns = sizes.z, b = (int)get_global_id(2);
    const int c = min((int)get_global_id(0) * 16, columns - 16), first_row = (int)get_global_id(1) * TILE_ROWS;
    COMPUTE_T16 sums[TILE_ROWS];
    int starts[TILE_ROWS];
#pragma unroll
    for (int k = 0; k < TILE_ROWS; ++k) {
        sums[k] = (COMPUTE_T16)0;
        starts[k] = b * left.x + min(first_row + k, rows - 1) * left.y;
    }
    int from = b * right.x + c, d = 0;
#if T_IS_HALF
    // Sixteen of a row are converted at once, where they lie side by side.
    for (; left.z == 1 && d + 16 <= sizes.w; d += 16) {
        float values[TILE_ROWS][16];
#pragma unroll
        for (int k = 0; k < TILE_ROWS; ++k)
            vstore16(LOAD16(lhs, starts[k] + d), 0, values[k]);
        for (int i = 0; i < 16; ++i, from += right.y) {
            const float16 line = LOAD16(rhs, from);
#pragma unroll
            for (int k = 0; k < TILE_ROWS; ++k)
                sums[k] = fma((float16)values[k][i], line, sums[k]);
        }
    }
#endif
    for (; d < sizes.w; ++d, from += right.y) {
        const COMPUTE_T16 line = CENTRED(LOAD16(rhs, from), zeros.y);
#pragma unroll
        for (int k = 0; k < TILE_ROWS; ++k)
            sums[k] = MULTIPLY_ADD(16, (COMPUTE_T16)CENTRED(LOAD(lhs, starts[k] + d * left.z), zeros.x), line, sums[k]);
    }
#pragma unroll
    for (int k = 0; k < TILE_ROWS; ++k)
        if (first_row + k < rows)
            STORE16(dst, (b * rows + first_row + k) * columns + c, RESULT(COMPUTE_T16, 16, sums[k]));
}

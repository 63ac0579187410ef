// SPDX-License-Identifier: Apache-2.0
// reduce.cl: MEAN over some axes.
// Maths    y = sum x / terms; quantised: multiply_by_quantized_multiplier(sum q - zero_point * terms, factor.x, factor.y) + zero_point
// Tensors  src of T; the kept dimensions are kept_sizes with kept_strides, the reduced ones sizes with strides (outermost first,
//          unused 1), strides in elements of src; dst [count] of T, dense
//          mean_vectors: the innermost dimension is kept and apart: `inner` elements, src and dst
// Units    terms: product of sizes; factor (mantissa, exponent): fixed-point 1 / terms, not used by float
// Defines  T: float | half | uchar | char (required); 8-bit types are quantised
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   mean: global (>= count), local (64); one work-item per output element
//          mean_vectors: global (>= ceil(inner / 16), outer), local (GROUP, 1); one work-item per sixteen of them
//          neighbouring work-items may write the same value to the same element; extra items return
//          mean_groups: global (GROUP * count), local (GROUP); one group per output element, for few outputs of many terms
// Needs    mean_vectors: inner >= 16; quantised: terms <= 2^23
// Exact    quantised: yes; float: compensated sums (Kahan), so that many terms lose nothing
#ifndef T
#error "reduce.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"

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
#define ADD_TERM(V, sum, lost, x)         \
    {                                     \
        const V term = (x) - lost;        \
        const V total = sum + term;       \
        lost = (total - sum) - term;      \
        sum = total;                      \
    }
#define MEAN_OF(V, SUFFIX, sum) ((sum) / (V)terms)
#else
#define ADD_TERM(V, sum, lost, x) sum += (x)
#define MEAN_OF(V, SUFFIX, sum)                                                                                        \
    (multiply_by_quantized_multiplier##SUFFIX((sum) - zero_point * terms, (V)factor.x, (V)factor.y) + zero_point)
#endif

// Sums LOADER(src, from + offset) over all reduced positions; the innermost two dimensions are loops of their own.
#define SUM(V, LOADER, from)                                                        \
    V sum = (V)0, lost = (V)0;                                                      \
    for (int outer = 0; outer < sizes.s0 * sizes.s1; ++outer) {                     \
        const int plane = (from) + outer / sizes.s1 * strides.s0 + outer % sizes.s1 * strides.s1; \
        for (int y = 0; y < sizes.s2; ++y)                                          \
            for (int x = 0; x < sizes.s3; ++x)                                      \
                ADD_TERM(V, sum, lost, LOADER(src, plane + y * strides.s2 + x * strides.s3)); \
    }

kernel void mean(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms, int2 factor,
    int zero_point, int count)
{
    const int i = (int)get_global_id(0);
    if (i >= count)
        return;
    const int from = offset_of(i, kept_sizes, kept_strides);
    SUM(COMPUTE_T, LOAD, from)
    STORE(dst, i, MEAN_OF(COMPUTE_T, , sum));
}

VECTOR_KERNEL void mean_vectors(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms,
    int2 factor, int zero_point, int inner)
{
    const int first = (int)get_global_id(0) * 16;
    if (first >= inner)
        return;
    const int x = min(first, inner - 16), row = (int)get_global_id(1);
    const int from = offset_of(row, kept_sizes, kept_strides) + x;
    SUM(COMPUTE_T16, LOAD16, from)
    STORE16(dst, row * inner + x, MEAN_OF(COMPUTE_T16, 16, sum));
}

VECTOR_KERNEL void mean_groups(global const T *src, global T *dst, int4 kept_sizes, int4 kept_strides, int4 sizes, int4 strides, int terms,
    int2 factor, int zero_point)
{
    local COMPUTE_T shared[GROUP];
    const int item = (int)get_local_id(0), output = (int)get_group_id(0);
    const int from = offset_of(output, kept_sizes, kept_strides);
    COMPUTE_T sum = 0, lost = 0;
    for (int i = item; i < terms; i += GROUP)
        ADD_TERM(COMPUTE_T, sum, lost, LOAD(src, from + offset_of(i, sizes, strides)));
    shared[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item > 0)
        return;
    for (int i = 1; i < GROUP; ++i)
        ADD_TERM(COMPUTE_T, sum, lost, shared[i]);
    STORE(dst, output, MEAN_OF(COMPUTE_T, , sum));
}

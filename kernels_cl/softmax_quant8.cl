// SPDX-License-Identifier: Apache-2.0
// softmax_quant8.cl: SOFTMAX of 8-bit numbers along one axis, in fixed point.
// Maths    d = max q - q; s = sum terms[d]; n = bit length of s; x = 1 / (s / 2^(n - 1)), 31 fraction bits
//          y = min(rounding_divide_by_pot(saturating_rounding_doubling_high_mul(exponentials[d], x), n + 3), 255) + offset
// Tensors  src, dst [outer, axis, inner] of T, dense row-major; exponentials, terms int [256] (SoftmaxTables of softmax.py);
//          softmax_rows: inner = 1
// Units    offset: 0, or -128 for char; rows_per_item: rows that a group computes one after the other
// Defines  T: uchar | char (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
//          DOT4: 0 (default) | 1 | 2 | 3: that form of common/dot4.h works; with VBMI of common/bytes.h 64 elements are looked up at once
// Launch   softmax: global (>= count), count = outer * inner, local (64); one work-item writes axis values; extra items return
//          softmax_rows: global (GROUP * ceil(outer / rows_per_item)), local (GROUP)
// Exact    yes, as TFLite's reference
#ifndef T
#error "softmax_quant8.cl: define T"
#endif

#ifndef DOT4
#define DOT4 0
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/lanes.h"
#if DOT4
#include "common/dot4.h"
#include "common/bytes.h"
#endif
#include "common/softmax_bytes.h"

kernel void softmax(
    global const T *src, global T *dst, global const int *exponentials, global const int *terms, int offset, int axis, int inner,
    int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    int largest = LOAD(src, start);
    for (int i = 1; i < axis; ++i)
        largest = max(largest, LOAD(src, start + i * inner));
    long sum = 0;
    for (int i = 0; i < axis; ++i)
        sum += terms[largest - LOAD(src, start + i * inner)];
    const int length = 64 - (int)clz(sum);
    const int inverse = reciprocal(half_of(sum, length));
    for (int i = 0; i < axis; ++i) {
        const int at = start + i * inner;
        STORE(dst, at, result_of(exponentials[largest - LOAD(src, at)], inverse, length + 3) + offset);
    }
}

VECTOR_KERNEL void softmax_rows(global const T *src, global T *dst, global const int *exponentials, global const int *terms, int offset,
    int axis, int outer, int rows_per_item)
{
    const int first_row = (int)get_group_id(0) * rows_per_item, last_row = min(first_row + rows_per_item, outer);
#if GROUP == 1
    softmax_of_rows(
        exponentials, terms, offset, src + first_row * axis, dst + first_row * axis, axis, last_row - first_row);
#else
    local int shared_largest[GROUP];
    local long shared_sum[GROUP];
    const int item = (int)get_local_id(0), whole = axis & ~15;
    for (int row = first_row; row < last_row; ++row) {
        const int start = row * axis;
        int16 largest16 = (int16)-128;
        for (int i = item * 16; i < whole; i += GROUP * 16)
            largest16 = max(largest16, LOAD16(src, start + i));
        int largest = largest_lane(largest16);
        for (int i = whole + item; i < axis; i += GROUP)
            largest = max(largest, LOAD(src, start + i));
        shared_largest[item] = largest;
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < GROUP; ++i)
            largest = max(largest, shared_largest[i]);

        long sum = 0;
        for (int i = item; i < axis; i += GROUP)
            sum += terms[largest - LOAD(src, start + i)];
        shared_sum[item] = sum;
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
        sum = 0;
        for (int i = 0; i < GROUP; ++i)
            sum += shared_sum[i];
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);

        const int length = 64 - (int)clz(sum);
        const int inverse = reciprocal(half_of(sum, length));
        for (int i = item; i < axis; i += GROUP)
            STORE(dst, start + i, result_of(exponentials[largest - LOAD(src, start + i)], inverse, length + 3) + offset);
    }
#endif
}

// SPDX-License-Identifier: Apache-2.0
// softmax.cl: SOFTMAX of real numbers along one axis; 8-bit ones are softmax_quant8.cl's.
// Maths    y = exp(beta * (x - max x)) / sum exp(beta * (x - max x)), in float
// Tensors  src, dst [outer, axis, inner] of T, dense row-major (dims before, at, after the axis); softmax_rows: inner = 1
// Units    beta > 0 has no unit; rows_per_item: rows that a group computes one after the other
// Defines  T: float | half (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   softmax: global (>= count), count = outer * inner, local (64); one work-item writes axis values; extra items return
//          softmax_rows: global (GROUP * ceil(outer / rows_per_item)), local (GROUP)
// Exact    sums in a fixed order; exp within 3 ulp; softmax_rows: times 1 / sum, both rounded
#ifndef T
#error "softmax.cl: define T"
#endif

#include "common/types.h"
#include "common/exponential.h"
#include "common/lanes.h"
#include "common/softmax.h"

kernel void softmax(global const T *src, global T *dst, float beta, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    float largest = LOAD(src, start);
    for (int i = 1; i < axis; ++i)
        largest = fmax(largest, LOAD(src, start + i * inner));
    float sum = 0.0f;
    for (int i = 0; i < axis; ++i)
        sum += exp(beta * (LOAD(src, start + i * inner) - largest));
    for (int i = 0; i < axis; ++i)
        STORE(dst, start + i * inner, exp(beta * (LOAD(src, start + i * inner) - largest)) / sum);
}

VECTOR_KERNEL void softmax_rows(global const T *src, global T *dst, float beta, int axis, int outer, int rows_per_item)
{
    FLUSH_DENORMALS;
    const int first_row = (int)get_group_id(0) * rows_per_item, last_row = min(first_row + rows_per_item, outer);
#if GROUP == 1
    softmax_of_rows(beta, src + first_row * axis, dst + first_row * axis, axis, last_row - first_row);
#else
    local float shared[GROUP];
    const int item = (int)get_local_id(0);
    const int whole = axis & ~15;
    for (int row = first_row; row < last_row; ++row) {
        const int start = row * axis;
        float16 largest16 = (float16)-INFINITY;
        for (int i = item * 16; i < whole; i += GROUP * 16)
            largest16 = fmax(largest16, LOAD16(src, start + i));
        float largest = largest_lane(largest16);
        for (int i = whole + item; i < axis; i += GROUP)
            largest = fmax(largest, LOAD(src, start + i));
        shared[item] = largest;
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < GROUP; ++i)
            largest = fmax(largest, shared[i]);
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);

        float16 sum16 = (float16)0.0f;
        for (int i = item * 16; i < whole; i += GROUP * 16) {
            const float16 part = exp_below_zero16(beta * (LOAD16(src, start + i) - largest));
            sum16 += part;
            KEEP16(dst, start + i, part);
        }
        float sum = sum_of_lanes(sum16);
        for (int i = whole + item; i < axis; i += GROUP) {
            const float part = exp(beta * (LOAD(src, start + i) - largest));
            sum += part;
            KEEP(dst, start + i, part);
        }
        shared[item] = sum;
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
        sum = 0.0f;
        for (int i = 0; i < GROUP; ++i)
            sum += shared[i];
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);

        const float share = 1.0f / sum;
        for (int i = item * 16; i < whole; i += GROUP * 16)
            STORE16(dst, start + i, share * KEPT16(dst, start + i, exp_below_zero16(beta * (LOAD16(src, start + i) - largest))));
        for (int i = whole + item; i < axis; i += GROUP)
            STORE(dst, start + i, share * KEPT(dst, start + i, exp(beta * (LOAD(src, start + i) - largest))));
    }
#endif
}

// SPDX-License-Identifier: Apache-2.0
// log_softmax.cl: LOG_SOFTMAX along one axis.
// Maths    z = beta * x; y = z - max z - log(sum exp(z - max z)), in float
// Tensors  src, dst [outer, axis, inner] of T, dense row-major (dims before, at, after the axis); log_softmax_rows: inner = 1
// Units    rows_per_item: rows that a work-item computes one after the other
// Defines  T: float | half (required)
// Launch   log_softmax: global (>= count), count = outer * inner, local (64); one work-item writes axis values; extra items return
//          log_softmax_rows: global (ceil(outer / rows_per_item)), local (1); for CPUs
// Exact    sums in a fixed order; exp and log within 3 ulp
#ifndef T
#error "log_softmax.cl: define T"
#endif

#include "common/types.h"
#include "common/exponential.h"
#include "common/logarithm.h"
#include "common/lanes.h"
#include "common/softmax.h"

static inline void log_softmax_of(float beta, global const T *src, global T *dst, int axis, int inner)
{
    float largest = beta * LOAD(src, 0);
    for (int i = 1; i < axis; ++i)
        largest = fmax(largest, beta * LOAD(src, i * inner));
    float sum = 0.0f;
    for (int i = 0; i < axis; ++i)
        sum += exp(beta * LOAD(src, i * inner) - largest);
    const float logarithm = log(sum);
    for (int i = 0; i < axis; ++i)
        STORE(dst, i * inner, beta * LOAD(src, i * inner) - largest - logarithm);
}

kernel void log_softmax(global const T *src, global T *dst, float beta, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    log_softmax_of(beta, src + start, dst + start, axis, inner);
}

// A row of sixteen or more; the last vector may overlap the one before it.
static inline void log_softmax_vectors(float beta, global const T *src, global T *dst, int axis)
{
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float16 largest16 = beta * LOAD16(src, axis - 16);
    for (int i = 0; i + 16 <= axis; i += 16)
        largest16 = fmax(largest16, beta * LOAD16(src, i));
    const float largest = largest_lane(largest16);
    float16 sum16 = (float16)0.0f;
    for (int i = 0; i < axis; i += 16) {
        const int from = min(i, axis - 16);
        const float16 part = exp_below_zero16(beta * LOAD16(src, from) - largest);
        sum16 += from + lane < i ? (float16)0.0f : part;
    }
    const float logarithm = log(sum_of_lanes(sum16));
    for (int i = 0; i < axis; i += 16) {
        const int from = min(i, axis - 16);
        STORE16(dst, from, beta * LOAD16(src, from) - largest - logarithm);
    }
}

// Sixteen rows of fewer than sixteen.
static inline void log_softmax_columns(float beta, global const T *src, global T *dst, int axis)
{
    float16 largest = (float16)-INFINITY, sum = (float16)0.0f;
    for (int i = 0; i < axis; ++i)
        largest = fmax(largest, beta * column_of_rows(src + i, axis));
    for (int i = 0; i < axis; ++i)
        sum += exp_below_zero16(beta * column_of_rows(src + i, axis) - largest);
    const float16 logarithm = log_16(sum);
    for (int i = 0; i < axis; ++i)
        store_column(dst + i, axis, beta * column_of_rows(src + i, axis) - largest - logarithm);
}

TILE_KERNEL void log_softmax_rows(global const T *src, global T *dst, float beta, int axis, int outer, int rows_per_item)
{
    int row = (int)get_global_id(0) * rows_per_item;
    const int last = min(row + rows_per_item, outer);
    for (; axis >= 16 && row < last; ++row)
        log_softmax_vectors(beta, src + row * axis, dst + row * axis, axis);
    for (; row + 16 <= last; row += 16)
        log_softmax_columns(beta, src + row * axis, dst + row * axis, axis);
    for (; row < last; ++row)
        log_softmax_of(beta, src + row * axis, dst + row * axis, axis, 1);
}

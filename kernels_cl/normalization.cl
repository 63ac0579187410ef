// SPDX-License-Identifier: Apache-2.0
// normalization.cl: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION of real numbers.
// Maths    l2_normalization:             y = x / max(sqrt(sum x^2), 1e-6), the sum along the axis
//          local_response_normalization: y = x * (bias + alpha * sum x_j^2)^-beta, |j - i| <= radius along the axis
//          instance_normalization:       y = gamma * (x - mean) / sqrt(variance + epsilon) + beta, both along the axis
// Tensors  src, dst [outer, axis, inner] of T, dense row-major; the axis of instance_normalization is height * width
// Units    rows_per_item: rows that a work-item computes one after the other
// Defines  T: float | half (required)
// Launch   local_response_normalization: global (>= outer * axis * inner), local (64); one work-item per element
//          l2_normalization_rows, of inner = 1 and axis >= 16: global (ceil(outer / rows_per_item)), local (1); for CPUs
//          the others: global (>= count), count = outer * inner, local (64); one work-item writes axis values
//          extra items return
// Exact    float; means and variances by compensated sums (Kahan)
#ifndef T
#error "normalization.cl: define T"
#endif

#include "common/types.h"
#include "common/lanes.h"
#include "common/power.h"

kernel void l2_normalization(global const T *src, global T *dst, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    float sum = 0.0f;
    for (int i = 0; i < axis; ++i) {
        const float x = LOAD(src, start + i * inner);
        sum += x * x;
    }
    const float length = sqrt(sum), norm = length < 1e-6f ? 1e-6f : length; // fmax would lose a NaN
    for (int i = 0; i < axis; ++i)
        STORE(dst, start + i * inner, LOAD(src, start + i * inner) / norm);
}

TILE_KERNEL void l2_normalization_rows(global const T *src, global T *dst, int axis, int outer, int rows_per_item)
{
    const int first = (int)get_global_id(0) * rows_per_item, whole = axis & ~15;
    for (int row = first; row < min(first + rows_per_item, outer); ++row) {
        global const T *x = src + row * axis;
        float16 sums = (float16)0.0f;
        for (int i = 0; i < whole; i += 16) {
            const float16 v = LOAD16(x, i);
            sums += v * v;
        }
        float sum = sum_of_lanes(sums);
        for (int i = whole; i < axis; ++i)
            sum += LOAD(x, i) * LOAD(x, i);
        const float length = sqrt(sum), norm = length < 1e-6f ? 1e-6f : length;
        for (int i = 0; i < axis; i += 16) {
            const int at = min(i, axis - 16); // the last vector may overlap the one before it
            STORE16(dst, row * axis + at, LOAD16(x, at) / norm);
        }
    }
}

// x^-beta; the usual exponents by roots, which are exact and many times faster.
static inline float negative_power(float x, float beta)
{
    if (beta == 0.75f)
        return 1.0f / (sqrt(x) * sqrt(sqrt(x)));
    if (beta == 0.5f)
        return 1.0f / sqrt(x);
    return beta == 1.0f ? 1.0f / x : power_of(x, -beta);
}

kernel void local_response_normalization(
    global const T *src, global T *dst, int radius, float bias, float alpha, float beta, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int i = item / inner % axis;
    const int start = item - i * inner;
    const int first = i > radius ? i - radius : 0, last = axis - 1 - i > radius ? i + radius : axis - 1;
    float sum = 0.0f;
    for (int j = first; j <= last; ++j) {
        const float x = LOAD(src, start + j * inner);
        sum += x * x;
    }
    STORE(dst, item, LOAD(src, item) * negative_power(bias + alpha * sum, beta));
}

#define ADD_TERM(sum, lost, x)             \
    {                                      \
        const float term = (x) - lost;     \
        const float total = sum + term;    \
        lost = (total - sum) - term;       \
        sum = total;                       \
    }

kernel void instance_normalization(
    global const T *src, global T *dst, float gamma, float beta, float epsilon, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    float sum = 0.0f, lost = 0.0f;
    for (int i = 0; i < axis; ++i)
        ADD_TERM(sum, lost, LOAD(src, start + i * inner))
    const float mean = sum / (float)axis;
    sum = lost = 0.0f;
    for (int i = 0; i < axis; ++i) {
        const float deviation = LOAD(src, start + i * inner) - mean;
        ADD_TERM(sum, lost, deviation * deviation)
    }
    const float factor = gamma / sqrt(sum / (float)axis + epsilon);
    for (int i = 0; i < axis; ++i)
        STORE(dst, start + i * inner, (LOAD(src, start + i * inner) - mean) * factor + beta);
}

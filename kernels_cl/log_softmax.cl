// SPDX-License-Identifier: Apache-2.0
// log_softmax.cl: LOG_SOFTMAX along one axis.
// Maths    z = beta * x; y = z - max z - log(sum exp(z - max z)), in float
// Tensors  src, dst [outer, axis, inner] of T, dense row-major (dims before, at, after the axis)
// Defines  T: float | half (required)
// Launch   global (>= count), count = outer * inner, local (64); one work-item writes axis values; extra items return
// Exact    sums in a fixed order; exp and log within 3 ulp
#ifndef T
#error "log_softmax.cl: define T"
#endif

#include "common/types.h"

kernel void log_softmax(global const T *src, global T *dst, float beta, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    float largest = beta * LOAD(src, start);
    for (int i = 1; i < axis; ++i)
        largest = fmax(largest, beta * LOAD(src, start + i * inner));
    float sum = 0.0f;
    for (int i = 0; i < axis; ++i)
        sum += exp(beta * LOAD(src, start + i * inner) - largest);
    const float logarithm = log(sum);
    for (int i = 0; i < axis; ++i)
        STORE(dst, start + i * inner, beta * LOAD(src, start + i * inner) - largest - logarithm);
}

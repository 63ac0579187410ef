// SPDX-License-Identifier: Apache-2.0
// activation.cl: RELU, RELU1, RELU6.
// Maths    y = min(max(x, low), high); NaN stays NaN
// Tensors  src, dst: count elements of T
// Units    low, high of COMPUTE_T: real bounds, or quantised ones; per_item: vectors that a work-item computes
// Defines  T: float | half | uchar | char (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   global (>= ceil(ceil(count / 16) / per_item)), local (GROUP); extra items return
// Exact    yes
#ifndef T
#error "activation.cl: define T"
#endif

#include "common/types.h"

VECTOR_KERNEL void relu(global const T *src, global T *dst, COMPUTE_T low, COMPUTE_T high, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item * 16;
    const int last = min(first + per_item * 16, count);
    int i = first;
    for (; i + 16 <= last; i += 16) {
        COMPUTE_T16 x = LOAD16(src, i);
        x = x < (COMPUTE_T16)low ? (COMPUTE_T16)low : x;
        STORE16(dst, i, x > (COMPUTE_T16)high ? (COMPUTE_T16)high : x);
    }
    for (; i < last; ++i) {
        COMPUTE_T x = LOAD(src, i);
        x = x < low ? low : x;
        STORE(dst, i, x > high ? high : x);
    }
}

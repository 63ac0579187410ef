// SPDX-License-Identifier: Apache-2.0
// topk.cl: TOPK_V2: the k greatest of each row, falling; of equal ones the larger index first.
// Maths    topk_select: the greatest, then k - 1 times the greatest that comes after the one before
//          topk_rank:   an element's place is the number of those before it; written where it is below k
//          order of real numbers: NaN before infinity, the two zeros are equal
// Tensors  src [outer, axis], values [outer, k] of T, indices int [outer, k], dense row-major
// Defines  T: float | half | uchar | char | int (required)
// Launch   topk_select: global (>= outer), local (64); one work-item per row
//          topk_rank: global (>= axis, outer), local (64, 1); one work-item per element
//          extra items return
// Exact    yes
#ifndef T
#error "topk.cl: define T"
#endif

#include "common/types.h"

// An integer in the order of the element.
static inline int order_of(COMPUTE_T x)
{
#if T_IS_FLOAT
    const int bits = as_int(x);
    return x != x ? 2147483647 : x == 0.0f ? 0 : bits ^ ((bits >> 31) & 2147483647);
#else
    return x;
#endif
}

kernel void topk_select(global const T *src, global T *values, global int *indices, int axis, int k, int outer)
{
    const int row = (int)get_global_id(0);
    if (row >= outer)
        return;
    int last = 2147483647, last_at = axis;
    for (int place = 0; place < k; ++place) {
        int best = 0, best_at = -1;
        for (int i = 0; i < axis; ++i) {
            const int order = order_of(LOAD(src, row * axis + i));
            const int is_left = order < last || (order == last && i < last_at);
            if (is_left && (best_at < 0 || order >= best)) {
                best = order;
                best_at = i;
            }
        }
        STORE(values, row * k + place, LOAD(src, row * axis + best_at));
        indices[row * k + place] = best_at;
        last = best;
        last_at = best_at;
    }
}

kernel void topk_rank(global const T *src, global T *values, global int *indices, int axis, int k)
{
    const int i = (int)get_global_id(0), row = (int)get_global_id(1);
    if (i >= axis)
        return;
    const COMPUTE_T value = LOAD(src, row * axis + i);
    const int own = order_of(value);
    int place = 0;
    for (int j = 0; j < axis; ++j) {
        const int other = order_of(LOAD(src, row * axis + j));
        place += other > own || (other == own && j > i);
    }
    if (place < k) {
        STORE(values, row * k + place, value);
        indices[row * k + place] = i;
    }
}

// SPDX-License-Identifier: Apache-2.0
// topk.cl: TOPK_V2: the k greatest of each row, falling; of equal ones the larger index first.
// Maths    topk_insert: the greatest so far, in order; from the last element on, each that comes before the last of them takes its place
//          topk_sort:   runs of sixteen are put in order, then two and two of them become one, of which k are kept
//          topk_rank:   an element's place is the number of those before it; written where it is below k
//          order of real numbers: NaN before infinity, the two zeros are equal, and to them what the device takes for 0
// Tensors  src [outer, axis], values [outer, k] of T, indices int [outer, k], dense row-major; scratch [items, 2, axis] of topk_sort
// Units    rows_per_item: rows that a work-item takes one after the other
// Defines  T: float | half | uchar | char | int (required)
// Launch   topk_insert, topk_sort: global (ceil(outer / rows_per_item)), local (1); for CPUs
//          topk_rank: global (>= axis, outer), local (64, 1); one work-item per element; extra items return
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

// Whether an element is greater than another; of one or sixteen, on numbers that are not rounded.
#if T_IS_FLOAT
#define IS_GREATER(a, b) (((a) > (b)) | (((a) != (a)) & ((b) == (b))))
#else
#define IS_GREATER(a, b) ((a) > (b))
#endif

// Puts element i of a row behind those that are as great or greater, of `count` that there are; the last of k falls out.
static inline void insert(global const T *row, int i, global T *values, global int *indices, int k, int count)
{
    global STORED *stored = (global STORED *)values;
    const COMPUTE_T own = LOAD(row, i);
    int place = min(count, k - 1);
    for (; place > 0 && IS_GREATER(own, LOAD(values, place - 1)); --place) {
        stored[place] = stored[place - 1];
        indices[place] = indices[place - 1];
    }
    stored[place] = ((global const STORED *)row)[i];
    indices[place] = i;
}

TILE_KERNEL void topk_insert(global const T *src, global T *values, global int *indices, int axis, int k, int outer, int rows_per_item)
{
    const int first = (int)get_global_id(0) * rows_per_item;
    for (int row = first; row < min(first + rows_per_item, outer); ++row) {
        global const T *x = src + row * axis;
        global T *best = values + row * k;
        global int *places = indices + row * k;
        int i = axis - 1;
        for (; i >= axis - k; --i)
            insert(x, i, best, places, k, axis - 1 - i);
        COMPUTE_T least = LOAD(best, k - 1);
        while (i >= 0) {
            if (i >= 15 && !any(IS_GREATER(LOAD16(x, i - 15), (COMPUTE_T16)least))) {
                i -= 16;
                continue;
            }
            for (const int end = max(i - 16, -1); i > end; --i)
                if (IS_GREATER(LOAD(x, i), least)) {
                    insert(x, i, best, places, k, k);
                    least = LOAD(best, k - 1);
                }
        }
    }
}

// Elements first .. first + count - 1 of a row, at most sixteen, falling. A long is greater for a greater element, and a larger index.
static inline void sort_run(global const T *row, int first, int count, global long *to)
{
    long run[16], places[16];
    for (int i = 0; i < 16; ++i)
        run[i] = i < count ? (long)order_of(LOAD(row, first + i)) << 32 | (uint)(first + i) : (long)1 << 63;
    const long16 all = vload16(0, run);
    long16 greater = 0; // how many are greater, negated
    for (int i = 0; i < count; ++i)
        greater += (long16)run[i] > all;
    vstore16(greater, 0, places);
    for (int i = 0; i < count; ++i)
        to[-places[i]] = run[i];
}

// The greatest `count` of two runs, one of n behind the other of m, which lie `apart`; all are falling.
static inline void merge_runs(global const long *from, int n, int m, int apart, global long *to, int count)
{
    global const long *other = from + apart;
    int i = 0, j = 0, k = 0;
    for (; i < n && j < m && k < count; ++k) {
        const long a = from[i], b = other[j];
        const int is_first = a > b;
        to[k] = is_first ? a : b;
        i += is_first;
        j += 1 - is_first;
    }
    for (; i < n && k < count; ++k)
        to[k] = from[i++];
    for (; j < m && k < count; ++k)
        to[k] = other[j++];
}

TILE_KERNEL void topk_sort(global const T *src, global T *values, global int *indices, int axis, int k, int outer, int rows_per_item,
    global long *scratch)
{
    const int first = (int)get_global_id(0) * rows_per_item;
    global long *from = scratch + get_global_id(0) * 2 * axis, *to = from + axis;
    for (int row = first; row < min(first + rows_per_item, outer); ++row) {
        global const T *x = src + row * axis;
        for (int at = 0; at < axis; at += 16)
            sort_run(x, at, min(16, axis - at), from + at);
        for (int apart = 16; apart < axis; apart *= 2) {
            for (int at = 0; at < axis; at += 2 * apart) {
                const int n = min(k, min(apart, axis - at)), m = clamp(axis - at - apart, 0, min(k, apart));
                merge_runs(from + at, n, m, apart, to + at, min(k, n + m));
            }
            global long *made = to;
            to = from;
            from = made;
        }
        for (int place = 0; place < k; ++place) {
            const int i = (int)from[place];
            ((global STORED *)values)[row * k + place] = ((global const STORED *)x)[i];
            indices[row * k + place] = i;
        }
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

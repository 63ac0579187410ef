// SPDX-License-Identifier: Apache-2.0
// gather.cl: GATHER, EMBEDDING_LOOKUP, HASHTABLE_LOOKUP: slices chosen by index, indices chosen by key.
// Maths    gather, gather_rows: dst[o, n, i] = src[o, indices[n], i]; -1 gives 0 where missing_is_zero; other indices outside the axis are
//                       complained of (common/fault.h) and clamped to it
//          find_keys: place[n] = first p with keys[p] == lookups[n], else -1; hits[n] = 1 or 0
// Tensors  src [outer, axis, inner], dst [outer, chosen, inner] of T, indices int [chosen], dense row-major
//          keys int [key_count], ascending; lookups, place int [count]; hits uchar [count]
// Units    rows: outer * chosen; rows_per_item: of them what a work-item copies
// Defines  T: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Launch   gather: global (>= chosen * inner, outer), local (64, 1); one work-item per element
//          gather_rows: global (ceil(rows / rows_per_item)), local (1); for CPUs
//          find_keys: global (>= count), local (64); one work-item per lookup
//          extra items return
// Exact    yes
#ifndef T
#error "gather.cl: define T"
#endif

#include "common/fault.h"

kernel void gather(global const T *src, global const int *indices, global T *dst, int axis, int inner, int chosen, int missing_is_zero,
    global int *fault, int number)
{
    const int i = (int)get_global_id(0), outer = (int)get_global_id(1);
    if (i >= chosen * inner)
        return;
    const int index = indices[i / inner];
    if ((index < 0 && !missing_is_zero) || index >= axis)
        complain(fault, number);
    const T value = src[(outer * axis + clamp(index, 0, axis - 1)) * inner + i % inner];
    dst[outer * chosen * inner + i] = missing_is_zero && index < 0 ? (T)0 : value;
}

__attribute__((reqd_work_group_size(1, 1, 1))) kernel void gather_rows(global const T *src, global const int *indices, global T *dst,
    int axis, int inner, int chosen, int missing_is_zero, global int *fault, int number, int rows, int rows_per_item)
{
    const int first = (int)get_global_id(0) * rows_per_item;
    for (int row = first; row < min(first + rows_per_item, rows); ++row) {
        const int index = indices[row % chosen], missing = missing_is_zero && index < 0;
        if ((index < 0 && !missing_is_zero) || index >= axis)
            complain(fault, number);
        global const T *from = src + (row / chosen * axis + clamp(index, 0, axis - 1)) * inner;
        global T *to = dst + row * inner;
        for (int i = 0; i < inner; ++i)
            to[i] = missing ? (T)0 : from[i];
    }
}

kernel void find_keys(global const int *lookups, global const int *keys, global int *place, global uchar *hits, int key_count, int count)
{
    const int i = (int)get_global_id(0);
    if (i >= count)
        return;
    const int wanted = lookups[i];
    int low = 0, high = key_count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (keys[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    const int found = low < key_count && keys[min(low, key_count - 1)] == wanted;
    place[i] = found ? low : -1;
    hits[i] = (uchar)found;
}

// SPDX-License-Identifier: Apache-2.0
// gather.cl: GATHER, EMBEDDING_LOOKUP, HASHTABLE_LOOKUP: slices chosen by index, indices chosen by key.
// Maths    gather, gather_rows: dst[o, n, i] = src[o, indices[n], i], of two sources one behind the other along the axis; indices
//                       as common/place.h
//          find_keys: place[n] = first p with keys[p] == lookups[n], else -1; hits[n] = 1 or 0
// Tensors  src [outer, front, inner] of T, behind [outer, axis - front, inner]: not read where front is axis;
//          dst [outer, chosen, inner] of T, or of R, indices int [chosen]; dense row-major
//          keys int [key_count], ascending; lookups, place int [count]; hits uchar [count]
// Units    rows: outer * chosen; rows_per_item: of them what a work-item copies; scale, zero_point: of src, where there is R
// Defines  T: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
//          R: float: what is found becomes real numbers; then T: uchar | char
// Launch   gather: global (>= chosen * inner, outer), local (64, 1); one work-item per element
//          gather_rows: global (ceil(rows / rows_per_item)), local (1); for CPUs
//          find_keys: global (>= count), local (64); one work-item per lookup
//          extra items return
// Exact    yes; with R as DEQUANTIZE
#ifndef T
#error "gather.cl: define T"
#endif

#include "common/place.h"

#ifdef R
#define MOVED(value) (scale * (R)((value) - zero_point))
#else
#define R T
#define MOVED(value) (value)
#define RAW T
#include "common/move_neighbours.h"
#endif

#define CPU_KERNEL __attribute__((reqd_work_group_size(1, 1, 1))) kernel

// The slice at a place of the axis, of which the second source has what is behind `front`.
static inline global const T *slice_at(global const T *src, global const T *behind, int place, int front, int inner)
{
    return place < front ? src + place * inner : behind + (place - front) * inner;
}

kernel void gather(global const T *src, global const T *behind, global const int *indices, global R *dst, int front, int axis, int inner,
    int chosen, int negative, float scale, int zero_point, global int *fault, int number)
{
    const int i = (int)get_global_id(0), outer = (int)get_global_id(1);
    if (i >= chosen * inner)
        return;
    const int place = place_of(indices[i / inner], axis, negative, fault, number);
    src += outer * front * inner;
    behind += outer * (axis - front) * inner;
    dst[outer * chosen * inner + i] = place < 0 ? (R)0 : MOVED(slice_at(src, behind, place, front, inner)[i % inner]);
}

static inline void move_slice(global const T *from, global R *to, int inner, float scale, int zero_point)
{
#ifdef RAW
    move_neighbours(from, to, inner);
#else
    for (int i = 0; i < inner; ++i)
        to[i] = MOVED(from[i]);
#endif
}

// `count` slices, one behind the other in dst.
static inline void gather_slices(global const T *src, global const T *behind, global const int *indices, global R *dst, int front,
    int axis, int inner, int count, int negative, float scale, int zero_point, global int *fault, int number)
{
    for (int n = 0; n < count; ++n) {
        const int place = place_of(indices[n], axis, negative, fault, number);
        if (place >= 0)
            move_slice(slice_at(src, behind, place, front, inner), dst + n * inner, inner, scale, zero_point);
        else
            for (int i = 0; i < inner; ++i)
                dst[n * inner + i] = (R)0;
    }
}

// The same of slices of one element from one source.
static inline void gather_elements(global const T *src, global const int *indices, global R *dst, int axis, int count,
    int negative, float scale, int zero_point, global int *fault, int number)
{
    for (int n = 0; n < count; ++n) {
        const int place = place_of(indices[n], axis, negative, fault, number);
        dst[n] = place < 0 ? (R)0 : MOVED(src[place]);
    }
}

CPU_KERNEL void gather_rows(global const T *src, global const T *behind, global const int *indices, global R *dst, int front, int axis,
    int inner, int chosen, int negative, float scale, int zero_point, global int *fault, int number, int rows, int rows_per_item)
{
    int row = (int)get_global_id(0) * rows_per_item;
    const int last = min(row + rows_per_item, rows);
    while (row < last) {
        const int outer = row / chosen, first = row % chosen, count = min(chosen - first, last - row);
        global const T *own = src + outer * front * inner;
        if (inner == 1 && front == axis)
            gather_elements(own, indices + first, dst + row, axis, count, negative, scale, zero_point, fault, number);
        else
            gather_slices(own, behind + outer * (axis - front) * inner, indices + first, dst + row * inner, front, axis, inner, count,
                negative, scale, zero_point, fault, number);
        row += count;
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

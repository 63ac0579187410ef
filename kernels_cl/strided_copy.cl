// SPDX-License-Identifier: Apache-2.0
// strided_copy.cl: copies a block of elements from one strided tensor into another; fills a tensor.
// Maths    strided_copy:   dst[dst_offset + sum i_k * dst_strides_k] = src[src_offset + sum i_k * src_strides_k], 0 <= i_k < sizes_k
//          strided_copy_rows: the same, the innermost dimension apart: `inner` elements, stride 1 on both sides
//          strided_lookup: the same with table[src[...]], T uchar: 8-bit values requantised on the way
//          fill:           dst[i] = value, 0 <= i < count
// Tensors  src, dst: elements of T; up to 8 dimensions, unused ones have size 1; a source stride may be 0 or negative
//          table [256] of T
// Units    offsets and strides in elements; rows: product of sizes; rows_per_item: rows that a work-item copies
// Defines  T: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Launch   global (>= product of sizes, or count), local (64); one work-item per element; extra items return
//          strided_copy_rows: global (ceil(rows / rows_per_item)), local (1); for CPUs
// Exact    yes
#ifndef T
#error "strided_copy.cl: define T"
#endif

// Element offsets of one item in both tensors.
static inline int2 offsets_of(int item, int8 sizes, int8 src_strides, int8 dst_strides)
{
    int2 offsets = (int2)(0, 0);
#define DIMENSION(k)                                                       \
    {                                                                      \
        const int i = item % sizes.s##k;                                   \
        item /= sizes.s##k;                                                \
        offsets += i * (int2)(src_strides.s##k, dst_strides.s##k);         \
    }
    DIMENSION(7)
    DIMENSION(6)
    DIMENSION(5)
    if (item == 0)
        return offsets;
    DIMENSION(4)
    DIMENSION(3)
    DIMENSION(2)
    DIMENSION(1)
    DIMENSION(0)
    return offsets;
}

kernel void strided_copy(
    global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides, int8 dst_strides, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count) {
        return;
    }
    const int2 at = offsets_of(item, sizes, src_strides, dst_strides);
    dst[dst_offset + at.y] = src[src_offset + at.x];
}

__attribute__((reqd_work_group_size(1, 1, 1))) kernel void strided_copy_rows(
    global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides, int8 dst_strides, int rows,
    int inner, int rows_per_item)
{
    const int first = (int)get_global_id(0) * rows_per_item;
    for (int row = first; row < min(first + rows_per_item, rows); ++row) {
        const int2 at = offsets_of(row, sizes, src_strides, dst_strides);
        global const T *from = src + (src_offset + at.x);
        global T *to = dst + (dst_offset + at.y);
        for (int i = 0; i < inner; ++i)
            to[i] = from[i];
    }
}

kernel void strided_lookup(
    global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides, int8 dst_strides, int count,
    global const T *table)
{
    const int item = (int)get_global_id(0);
    if (item >= count) {
        return;
    }
    const int2 at = offsets_of(item, sizes, src_strides, dst_strides);
    dst[dst_offset + at.y] = table[src[src_offset + at.x] & 0xff];
}

kernel void fill(global T *dst, T value, int count)
{
    const int item = (int)get_global_id(0);
    if (item < count) {
        dst[item] = value;
    }
}

// SPDX-License-Identifier: Apache-2.0
// strided_copy.cl: copies a block of elements from one strided tensor into another; fills a tensor.
// Maths    strided_copy:   dst[dst_offset + sum i_k * dst_strides_k] = src[src_offset + sum i_k * src_strides_k], 0 <= i_k < sizes_k
//          strided_copy_rows: the same, the innermost dimension apart: `inner` elements, steps.x of them in src, steps.y in dst
//          strided_copy_lines: the same, another dimension apart, too: `lines` of those elements, which lie between each other on one
//                          side: steps.y == lines, each one behind the other there, line_stride apart in src; or steps.x == lines
//          strided_copy_tiles: the same, two dimensions apart: tile.x elements of stride 1 in src and tile.z in dst, tile.y of stride 1
//                          in dst and tile.w in src
//          strided_lookup, strided_lookup_rows: the same with table[src[...]], T uchar: 8-bit values requantised on the way
//          fill:           dst[i] = value, 0 <= i < count
// Tensors  src, dst: elements of T; up to 8 dimensions, unused ones have size 1; a source stride may be 0 or negative
//          table [256] of T
// Units    offsets and strides in elements; rows: product of sizes; rows_per_item, inner_per_item, lines_per_item: of rows, `inner`
//          and tile.y what a work-item copies
// Defines  T: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Launch   strided_copy, strided_lookup, fill: global (>= product of sizes, or count), local (64); one work-item per element;
//          extra items return
//          *_rows, strided_copy_lines: global (ceil(rows / rows_per_item), ceil(inner / inner_per_item)), local (1, 1); for CPUs
//          strided_copy_tiles: global (ceil(tile.x / 16), ceil(tile.y / lines_per_item), product of sizes), local (1, 1, 1); for CPUs;
//          neighbours may write the same value to the same element
// Needs    strided_copy_tiles: tile.x, tile.y >= 16; lines_per_item a multiple of 16
//          strided_copy_lines: lines 2, 3, 4 or 8; best many of `inner_per_item`
// Exact    yes
#ifndef T
#error "strided_copy.cl: define T"
#endif

#define RAW T
#include "common/turn_tile.h"
#include "common/move_neighbours.h"

#define CPU_KERNEL __attribute__((reqd_work_group_size(1, 1, 1))) kernel

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

static inline void move_row(global const T *from, global T *to, int2 steps, int count)
{
    if (steps.x == 1 && steps.y == 1)
        move_neighbours(from, to, count);
    else
        for (int i = 0; i < count; ++i)
            to[i * steps.y] = from[i * steps.x];
}

static inline void look_up_row(global const T *from, global T *to, int2 steps, int count, global const T *table)
{
    for (int i = 0; i < count; ++i)
        to[i * steps.y] = table[from[i * steps.x] & 0xff];
}

// Does STATEMENT with `from`, `to` and `count` for this item's part of each of its rows. Where rows of the two innermost outer dimensions
// lie is found by sums: divisions take longer than to copy a row.
#define EVERY_ROW(STATEMENT)                                                                                  \
    const int begin = (int)get_global_id(1) * inner_per_item, count = min(inner_per_item, inner - begin);      \
    int row = (int)get_global_id(0) * rows_per_item;                                                           \
    const int last = min(row + rows_per_item, rows), rows_of_two = sizes.s6 * sizes.s7;                        \
    const int2 next = (int2)(src_strides.s7, dst_strides.s7);                                                  \
    const int2 next_line = (int2)(src_strides.s6, dst_strides.s6) - (sizes.s7 - 1) * next;                     \
    while (row < last) {                                                                                       \
        const int2 at = offsets_of(row, sizes, src_strides, dst_strides);                                      \
        global const T *from = src + (src_offset + at.x + begin * steps.x);                                    \
        global T *to = dst + (dst_offset + at.y + begin * steps.y);                                            \
        const int end = min(row + rows_of_two - row % rows_of_two, last);                                      \
        for (int left = sizes.s7 - row % sizes.s7; row < end; ++row) {                                         \
            STATEMENT;                                                                                         \
            const bool is_last = --left == 0;                                                                  \
            left = is_last ? sizes.s7 : left;                                                                  \
            from += is_last ? next_line.x : next.x;                                                            \
            to += is_last ? next_line.y : next.y;                                                              \
        }                                                                                                      \
    }

CPU_KERNEL void strided_copy_rows(global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides,
    int8 dst_strides, int2 steps, int rows, int inner, int rows_per_item, int inner_per_item)
{
    EVERY_ROW(move_row(from, to, steps, count))
}

CPU_KERNEL void strided_lookup_rows(global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides,
    int8 dst_strides, int2 steps, int rows, int inner, int rows_per_item, int inner_per_item, global const T *table)
{
    EVERY_ROW(look_up_row(from, to, steps, count, table))
}

static inline void move_lines(global const T *from, global T *to, int2 steps, int count, int lines, int line_stride)
{
    const bool is_interleaved = steps.x == 1;
    if (count < 16)
        for (int i = 0; i < count * lines; ++i) {
            const int x = i / lines, line = i % lines;
            to[x * steps.y + line * (is_interleaved ? 1 : line_stride)] = from[x * steps.x + line * (is_interleaved ? line_stride : 1)];
        }
    else
        for (int i = 0; i < count; i += 16) {
            const int x = min(i, count - 16); // the last begin among those before
            if (is_interleaved)
                interleave_few(from + x, to + x * lines, line_stride, lines);
            else
                separate_few(from + x * lines, to + x, line_stride, lines);
        }
}

CPU_KERNEL void strided_copy_lines(global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides,
    int8 dst_strides, int2 steps, int rows, int inner, int rows_per_item, int inner_per_item, int lines, int line_stride)
{
    EVERY_ROW(move_lines(from, to, steps, count, lines, line_stride))
}

CPU_KERNEL void strided_copy_tiles(global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides,
    int8 dst_strides, int4 tile, int lines_per_item)
{
    const int2 at = offsets_of((int)get_global_id(2), sizes, src_strides, dst_strides);
    const int x = min((int)get_global_id(0) * 16, tile.x - 16), first = (int)get_global_id(1) * lines_per_item;
    global const T *from = src + (src_offset + at.x + x);
    global T *to = dst + (dst_offset + at.y + x * tile.z);
    for (int line = first; line < min(first + lines_per_item, tile.y); line += 16) {
        const int y = min(line, tile.y - 16);
        turn_tile(from + y * tile.w, to + y, tile.w, tile.z);
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

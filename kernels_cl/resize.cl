// SPDX-License-Identifier: Apache-2.0
// resize.cl: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.
// Maths    bilinear: common/resize.h with v = row_weights[y], u = column_weights[x], pixels at rows lower[y] and upper[y], columns alike
//          nearest neighbour: the pixel (rows[y], columns[x])
// Tensors  src [batches, height, width, depth] of T, dst [batches, out_height, out_width, depth] of T, dense; NCHW is batches * depth
//          images of depth 1; rows, columns, *_lower, *_upper int, *_weights float: one per output row or column
// Defines  T: float | half | uchar | char (required)
// Launch   resize_bilinear, resize_nearest_neighbor: global (>= out_width * depth, out_height * batches), local (64, 1);
//          one work-item per output element
//          *_rows: global (1, out_height * batches), local (1, 1); one work-item per output row, for CPUs
//          extra items return
// Exact    8-bit and nearest neighbour: yes; float: as float32 without contraction
#ifndef T
#error "resize.cl: define T"
#endif

#include "common/types.h"

#include "common/copy_row.h"
#include "common/resize.h"

kernel void resize_bilinear(global const T *src, global T *dst, global const int *row_lower, global const int *row_upper,
    global const float *row_weights, global const int *column_lower, global const int *column_upper, global const float *column_weights,
    int height, int width, int depth, int out_height, int out_width)
{
    const int i = (int)get_global_id(0), row = (int)get_global_id(1);
    if (i >= out_width * depth)
        return;
    const int b = row / out_height, y = row % out_height, x = i / depth, c = i % depth;
    const float v = row_weights[y], u = column_weights[x];
    const int top = (b * height + row_lower[y]) * width, bottom = (b * height + row_upper[y]) * width;
    const int left = column_lower[x], right = column_upper[x];
    const float tl = TO_REAL(LOAD(src, (top + left) * depth + c)) * (1.0f - v);
    const float tr = TO_REAL(LOAD(src, (top + right) * depth + c)) * (1.0f - v);
    const float bl = TO_REAL(LOAD(src, (bottom + left) * depth + c)) * v, br = TO_REAL(LOAD(src, (bottom + right) * depth + c)) * v;
    STORE(dst, row * out_width * depth + i, FROM_REAL(blend(tl, tr, bl, br, u)));
}

TILE_KERNEL void resize_bilinear_rows(global const T *src, global T *dst, global const int *row_lower, global const int *row_upper,
    global const float *row_weights, global const int *column_lower, global const int *column_upper, global const float *column_weights,
    int height, int width, int depth, int out_height, int out_width)
{
    const int row = (int)get_global_id(1);
    const int b = row / out_height, y = row % out_height;
    const float v = row_weights[y];
    const int top = (b * height + row_lower[y]) * width * depth, bottom = (b * height + row_upper[y]) * width * depth;
    const int elements = (int)get_global_size(1) / out_height * height * width * depth;
    blend_row(src, elements, top, bottom, v, column_lower, column_upper, column_weights, depth, dst + row * out_width * depth, out_width,
        out_width * depth);
}

kernel void resize_nearest_neighbor(global const T *src, global T *dst, global const int *rows, global const int *columns, int height,
    int width, int depth, int out_height, int out_width)
{
    const int i = (int)get_global_id(0), row = (int)get_global_id(1);
    if (i >= out_width * depth)
        return;
    const int b = row / out_height, y = row % out_height, x = i / depth, c = i % depth;
    const int from = ((b * height + rows[y]) * width + columns[x]) * depth + c;
    STORE(dst, row * out_width * depth + i, LOAD(src, from));
}

// A function of its own: PoCL 7.1 (LLVM 21) loses the end of its loops in the kernel.
static __attribute__((noinline)) void nearest_row(global const T *src, global const int *columns, int depth, global T *dst, int count)
{
    for (int x = 0; x < count; ++x)
        copy_row(src + columns[x] * depth, depth, dst + x * depth);
}

TILE_KERNEL void resize_nearest_neighbor_rows(global const T *src, global T *dst, global const int *rows, global const int *columns,
    int height, int width, int depth, int out_height, int out_width)
{
    const int row = (int)get_global_id(1);
    const int from_row = (row / out_height * height + rows[row % out_height]) * width;
    nearest_row(src + from_row * depth, columns, depth, dst + row * out_width * depth, out_width);
}

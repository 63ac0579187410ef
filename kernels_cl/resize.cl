// SPDX-License-Identifier: Apache-2.0
// resize.cl: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.
// Maths    bilinear, v = row_weights[y], u = column_weights[x], in float and in this order, no contraction:
//          result = tl (1 - v) (1 - u) + bl v (1 - u) + tr (1 - v) u + br v u, pixels at rows lower[y] and upper[y], columns alike
//          8-bit: trunc(result + 0.5) of unsigned codes (signed ones + 128)
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

#pragma OPENCL FP_CONTRACT OFF

#include "common/types.h"

#if T_IS_FLOAT
#define TO_REAL(v) (v)
#define TO_REAL16(v) (v)
#define FROM_REAL(v) (v)
#define FROM_REAL16(v) (v)
#else
#define UNSIGNED_OFFSET (TYPE_NUMBER == TYPE_NUMBER_char ? 128 : 0)
#define TO_REAL(v) (float)((v) + UNSIGNED_OFFSET)
#define TO_REAL16(v) WIDEN((v) + UNSIGNED_OFFSET, float16)
#define FROM_REAL(v) ((int)((v) + 0.5f) - UNSIGNED_OFFSET)
#define FROM_REAL16(v) (WIDEN((v) + 0.5f, int16) - UNSIGNED_OFFSET)
#endif

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
    const float tl = TO_REAL(LOAD(src, (top + left) * depth + c)), tr = TO_REAL(LOAD(src, (top + right) * depth + c));
    const float bl = TO_REAL(LOAD(src, (bottom + left) * depth + c)), br = TO_REAL(LOAD(src, (bottom + right) * depth + c));
    float result = tl * (1.0f - v) * (1.0f - u);
    result += bl * v * (1.0f - u);
    result += tr * (1.0f - v) * u;
    result += br * v * u;
    STORE(dst, row * out_width * depth + i, FROM_REAL(result));
}

TILE_KERNEL void resize_bilinear_rows(global const T *src, global T *dst, global const int *row_lower, global const int *row_upper,
    global const float *row_weights, global const int *column_lower, global const int *column_upper, global const float *column_weights,
    int height, int width, int depth, int out_height, int out_width)
{
    const int row = (int)get_global_id(1);
    const int b = row / out_height, y = row % out_height;
    const float v = row_weights[y];
    const int top = (b * height + row_lower[y]) * width, bottom = (b * height + row_upper[y]) * width;
    for (int x = 0; x < out_width; ++x) {
        const float u = column_weights[x];
        const int left = column_lower[x], right = column_upper[x];
        const int to = (row * out_width + x) * depth;
        if (depth < 16) {
            for (int c = 0; c < depth; ++c) {
                const float tl = TO_REAL(LOAD(src, (top + left) * depth + c)), tr = TO_REAL(LOAD(src, (top + right) * depth + c));
                const float bl = TO_REAL(LOAD(src, (bottom + left) * depth + c)), br = TO_REAL(LOAD(src, (bottom + right) * depth + c));
                float result = tl * (1.0f - v) * (1.0f - u);
                result += bl * v * (1.0f - u);
                result += tr * (1.0f - v) * u;
                result += br * v * u;
                STORE(dst, to + c, FROM_REAL(result));
            }
            continue;
        }
        for (int first = 0; first < depth; first += 16) {
            const int c = min(first, depth - 16);
            const float16 tl = TO_REAL16(LOAD16(src, (top + left) * depth + c));
            const float16 tr = TO_REAL16(LOAD16(src, (top + right) * depth + c));
            const float16 bl = TO_REAL16(LOAD16(src, (bottom + left) * depth + c));
            const float16 br = TO_REAL16(LOAD16(src, (bottom + right) * depth + c));
            float16 result = tl * (1.0f - v) * (1.0f - u);
            result += bl * v * (1.0f - u);
            result += tr * (1.0f - v) * u;
            result += br * v * u;
            STORE16(dst, to + c, FROM_REAL16(result));
        }
    }
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

TILE_KERNEL void resize_nearest_neighbor_rows(global const T *src, global T *dst, global const int *rows, global const int *columns,
    int height, int width, int depth, int out_height, int out_width)
{
    const int row = (int)get_global_id(1);
    const int from_row = (row / out_height * height + rows[row % out_height]) * width;
    for (int x = 0; x < out_width; ++x) {
        const int from = (from_row + columns[x]) * depth, to = (row * out_width + x) * depth;
        if (depth < 16) {
            for (int c = 0; c < depth; ++c)
                STORE(dst, to + c, LOAD(src, from + c));
            continue;
        }
        for (int first = 0; first < depth; first += 16) {
            const int c = min(first, depth - 16);
            STORE16(dst, to + c, LOAD16(src, from + c));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// pooling.cl: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D.
// Maths    y[b,oy,ox,c] = act(mean or max over fy, fx of x[b, oy * stride_height - padding_top + fy, ox alike, c]), L2_POOL_2D: the root of
//          the mean of squares; positions outside the image do not count, NaN is the greatest; 8-bit means of the stored values, rounded
//          half away from 0
// Tensors  src [batches, height, width, depth] of T, dst [batches, out_height, out_width, depth] of T, dense; NCHW is batches * depth
//          images of depth 1
// Units    low, high of COMPUTE_T: bounds of the activation; blocks: sixteen channels each; blocks_per_item of them a work-item computes
// Defines  T: float | half | uchar | char (required)
//          GROUP: 1, or a multiple of 32: work-items of a group of *_groups, which are there where it is more than 1
// Launch   NAME is average_pool_2d, max_pool_2d, or for real numbers l2_pool_2d
//          NAME: global (>= out_width * depth, out_height * batches), local (64, 1);
//          one work-item per output element
//          NAME_rows: global (ceil(ceil(depth / 16) / blocks_per_item), out_height * batches), local (1, 1);
//          one work-item per output row and its blocks, for CPUs; neighbours may write the same value to the same element
//          NAME_groups: global (GROUP, ceil(depth / 32) * out_width * out_height * batches), local (GROUP, 1);
//          one group per output pixel and 32 channels, for few outputs of large windows on GPUs
//          extra items return
// Needs    every window holds a pixel; 8-bit: at most 2^23 of them; *_rows: depth >= 16
// Exact    8-bit and maxima: yes; float means, also of squares: sums of row sums, *_groups: of what is GROUP / 32 pixels apart
#ifndef T
#error "pooling.cl: define T"
#endif

#include "common/types.h"

#include "common/index.h"
#include "common/kept.h"
#include "common/mean.h"

#include "common/pooled.h"
#include "common/average.h"
#include "common/greatest.h"

typedef struct {
    int y0, y1, x0, x1;
} Window;

// Image rows y0 .. y1 - 1 and columns x0 .. x1 - 1 under the filter.
static inline Window window_at(int oy, int ox, int height, int width, int2 filter, int2 stride, int2 padding)
{
    const int y = oy * stride.x - padding.x, x = ox * stride.y - padding.y;
    const Window window = {max(y, 0), min(y + filter.x, height), max(x, 0), min(x + filter.y, width)};
    return window;
}

// Combines the terms of an element of each pixel within window: rows first, then the rows' results.
#define COMBINE_SUM(a, b) ((a) + (b))
#define COMBINE_MAX(a, b) ((b) > (a) ? (b) : (a))
#define SQUARE(value) ((value) * (value))
#define POOL(COMBINE, TERM, identity, image, c)                                                                                 \
    COMPUTE_T result = identity;                                                                                                \
    int sizes = 0;                                                                                                              \
    for (int y = window.y0; y < window.y1; ++y) {                                                                               \
        COMPUTE_T line = identity;                                                                                              \
        for (int x = window.x0; x < window.x1; ++x) {                                                                           \
            const COMPUTE_T value = LOAD(src, ((image) + y * width + x) * depth + (c));                                         \
            line = COMBINE(line, TERM(value));                                                                                  \
            sizes = max(sizes, SIZE_OF(value));                                                                                 \
        }                                                                                                                       \
        result = COMBINE(result, line);                                                                                         \
    }

// Maxima ask of a window, not of each value, whether it has NaN: bits of its size beyond infinity's.
#if T_IS_FLOAT
#define SIZE_OF(value) (as_int(value) & INT_MAX)
#define MAX_RESULT (sizes > NO_NAN ? (COMPUTE_T)NAN : result)
#else
#define SIZE_OF(value) 0
#define MAX_RESULT result
#endif

#define WINDOW_PIXELS ((window.y1 - window.y0) * (window.x1 - window.x0))
#define SUM_RESULT MEAN_OF(result, WINDOW_PIXELS)
#define ROOT_OF_MEAN(sum, count) sqrt((sum) / (float)(count))
#define ROOT_RESULT ROOT_OF_MEAN(result, WINDOW_PIXELS)

#define POOLING(NAME, COMBINE, TERM, identity, RESULT)                                                                          \
    kernel void NAME(global const T *src, global T *dst, COMPUTE_T low, COMPUTE_T high, int height, int width, int depth,       \
        int out_height, int out_width, int2 filter, int2 stride, int2 padding)                                                  \
    {                                                                                                                           \
        const int i = (int)get_global_id(0), row = (int)get_global_id(1);                                                       \
        if (i >= out_width * depth)                                                                                             \
            return;                                                                                                             \
        const Window window = window_at(row % out_height, i / depth, height, width, filter, stride, padding);                   \
        POOL(COMBINE, TERM, identity, row / out_height * height * width, i % depth)                                             \
        const COMPUTE_T y = RESULT;                                                                                             \
        STORE(dst, row * out_width * depth + i, y < low ? low : y > high ? high : y);                                           \
    }

// Each pixel of a work-item's part of a row by OF_WINDOW, whose vectors are of V.
#define POOLING_ROWS(NAME, OF_WINDOW, V)                                                                                        \
    TILE_KERNEL void NAME##_rows(global const T *src, global T *dst, COMPUTE_T low, COMPUTE_T high, int height, int width,      \
        int depth, int out_height, int out_width, int2 filter, int2 stride, int2 padding, int blocks_per_item)                  \
    {                                                                                                                           \
        const int first = (int)get_global_id(0) * blocks_per_item * 16, row = (int)get_global_id(1);                            \
        const int last = min(first + blocks_per_item * 16, depth), image = row / out_height * height * width;                   \
        for (int ox = 0; ox < out_width; ++ox) {                                                                                \
            const Window window = window_at(row % out_height, ox, height, width, filter, stride, padding);                      \
            OF_WINDOW(src + (image + window.y0 * width + window.x0) * depth, window.y1 - window.y0, window.x1 - window.x0,      \
                depth, width * depth, first, last, (V)low, (V)high, dst + (row * out_width + ox) * depth);                      \
        }                                                                                                                       \
    }

POOLING(average_pool_2d, COMBINE_SUM, ITSELF, 0, SUM_RESULT)
POOLING(max_pool_2d, COMBINE_MAX, ITSELF, LOWEST, MAX_RESULT)
POOLING_ROWS(average_pool_2d, average_of_window, COMPUTE_T16)
POOLING_ROWS(max_pool_2d, greatest_of_window, KEPT_T16)
#if T_IS_FLOAT
AVERAGE(root16, 1, SQUARE, ROOT_OF_MEAN)
AVERAGE(root64, 4, SQUARE, ROOT_OF_MEAN)
DEFINE_OF_WINDOW(root_of_window, root16, root64, COMPUTE_T16)
POOLING(l2_pool_2d, COMBINE_SUM, SQUARE, 0, ROOT_RESULT)
POOLING_ROWS(l2_pool_2d, root_of_window, COMPUTE_T16)
#endif

#if GROUP > 1
#define CHANNELS 32 // neighbours in memory for neighbouring work-items
#define SHARES (GROUP / CHANNELS)
#define POOLING_GROUPS(NAME, COMBINE, TERM, identity, RESULT)                                                                   \
    VECTOR_KERNEL void NAME##_groups(global const T *src, global T *dst, COMPUTE_T low, COMPUTE_T high, int height, int width,  \
        int depth, int out_height, int out_width, int2 filter, int2 stride, int2 padding)                                       \
    {                                                                                                                           \
        local COMPUTE_T results[GROUP];                                                                                         \
        local int all_sizes[GROUP];                                                                                             \
        const int item = (int)get_local_id(0), group = (int)get_group_id(1), blocks = ceil_divide(depth, CHANNELS);             \
        const int c = group % blocks * CHANNELS + item % CHANNELS, pixel = group / blocks, row = pixel / out_width;             \
        const Window window = window_at(row % out_height, pixel % out_width, height, width, filter, stride, padding);           \
        const int across = window.x1 - window.x0, image = row / out_height * height * width;                                    \
        COMPUTE_T result = identity;                                                                                            \
        int sizes = 0;                                                                                                          \
        for (int i = item / CHANNELS; c < depth && i < WINDOW_PIXELS; i += SHARES) {                                            \
            const int y = window.y0 + i / across, x = window.x0 + i % across;                                                   \
            const COMPUTE_T value = LOAD(src, (image + y * width + x) * depth + c);                                             \
            result = COMBINE(result, TERM(value));                                                                              \
            sizes = max(sizes, SIZE_OF(value));                                                                                 \
        }                                                                                                                       \
        results[item] = result;                                                                                                 \
        all_sizes[item] = sizes;                                                                                                \
        GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);                                                                                     \
        if (item >= CHANNELS || c >= depth)                                                                                     \
            return;                                                                                                             \
        for (int i = item + CHANNELS; i < GROUP; i += CHANNELS) {                                                               \
            result = COMBINE(result, results[i]);                                                                               \
            sizes = max(sizes, all_sizes[i]);                                                                                   \
        }                                                                                                                       \
        const COMPUTE_T y = RESULT;                                                                                             \
        STORE(dst, pixel * depth + c, y < low ? low : y > high ? high : y);                                                     \
    }

POOLING_GROUPS(average_pool_2d, COMBINE_SUM, ITSELF, 0, SUM_RESULT)
POOLING_GROUPS(max_pool_2d, COMBINE_MAX, ITSELF, LOWEST, MAX_RESULT)
#if T_IS_FLOAT
POOLING_GROUPS(l2_pool_2d, COMBINE_SUM, SQUARE, 0, ROOT_RESULT)
#endif
#endif

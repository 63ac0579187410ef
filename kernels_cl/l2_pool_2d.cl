// SPDX-License-Identifier: Apache-2.0
// l2_pool_2d.cl: L2_POOL_2D.
// Maths    y[b,oy,ox,c] = act(sqrt(mean over fy, fx of x[b, oy * stride.x - padding.x + fy, ox alike, c]^2));
//          positions outside the image do not count
// Tensors  src [batches, height, width, depth] of T, dst [batches, out_height, out_width, depth] of T, dense; NCHW is batches * depth
//          images of depth 1
// Units    low, high: bounds of the activation; filter, stride, padding (height, width), padding at the top and left
// Defines  T: float | half (required)
// Launch   global (>= out_width * depth, out_height * batches), local (64, 1); one work-item per output element; extra items return
// Needs    every window holds a pixel
// Exact    float sums of row sums
#ifndef T
#error "l2_pool_2d.cl: define T"
#endif

#include "common/types.h"
#include "common/activation.h"

kernel void l2_pool_2d(global const T *src, global T *dst, float low, float high, int height, int width, int depth, int out_height,
    int out_width, int2 filter, int2 stride, int2 padding)
{
    const int i = (int)get_global_id(0), line = (int)get_global_id(1);
    if (i >= out_width * depth)
        return;
    const int top = line % out_height * stride.x - padding.x, left = i / depth * stride.y - padding.y;
    const int y0 = max(top, 0), y1 = min(top + filter.x, height), x0 = max(left, 0), x1 = min(left + filter.y, width);
    const int image = line / out_height * height * width;
    float sum = 0.0f;
    for (int y = y0; y < y1; ++y) {
        float row_sum = 0.0f;
        for (int x = x0; x < x1; ++x) {
            const float value = LOAD(src, (image + y * width + x) * depth + i % depth);
            row_sum += value * value;
        }
        sum += row_sum;
    }
    STORE(dst, line * out_width * depth + i, activate(sqrt(sum / (float)((y1 - y0) * (x1 - x0))), low, high));
}

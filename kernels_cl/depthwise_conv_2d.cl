// SPDX-License-Identifier: Apache-2.0
// depthwise_conv_2d.cl: DEPTHWISE_CONV_2D of multiplier 1 on GPUs, four channels at a time.
// Maths    y[b,oy,ox,c] = act(bias[c] + sum over fy, fx of (x[b,iy,ix,c] - zero_in) * (w[fy,fx,c] - zero_w))
//          iy = oy * stride.y - padding.y + fy * dilation.y, ix alike; taps outside of the image add nothing; quantised: act as in conv_2d.cl
// Tensors  src, dst [batch, height, width, depth] of T; weights [filter height, filter width, depth] of FILTER_T; all dense
//          bias, multipliers, shifts: as conv_2d.cl
// Units    input (height, width, depth, aligned): aligned: depth is a multiple of 4; output (height, width, depth, batches)
//          window (filter height, filter width, padding top, padding left), steps (stride y, x, dilation y, x)
//          zeros: zero points (src, weights, dst, 0) (quantised only); low, high: bounds of the activation
// Defines  T: float | half | uchar | char; FILTER_T: T, or char for per-channel weights; QUANTIZED: 0 | 1 (all required)
//          GROUP: 1, or a multiple of 8: work-items of a group of *_groups, which is there where it is more than 1
// Launch   *_tiles: global (>= quads * ceil(out_width / 4) * ceil(out_height / 2) * batches), local (64), where quads is ceil(depth / 4); one
//          work-item per 4 channels of 4 pixels of 2 lines, channels fastest; *_pixels: the same with 1 pixel for 4 and 1 line for 2, for few
//          *_groups: global (GROUP, ceil(depth / 32) * out_width * out_height * batches), local (GROUP, 1); one group per output pixel and
//          32 channels, for few outputs of large windows
//          extra items return; the last channels, pixels and lines that are not as many overlap their neighbours, which write the same
// Needs    depth >= 4; *_tiles: depth a multiple of 4, out_width >= 4, out_height >= 2
// Exact    quantised: bit for bit as TFLite's reference; float: fused multiply-adds in the order fy, fx (*_groups: of taps GROUP / 8 apart, then of
//          those sums), then the bias
#include "common/depthwise_quads.h"

CONVOLVE_QUADS(4, 2, 1, 1)
CONVOLVE_QUADS(1, 1, input.w, 0)

kernel void depthwise_conv_2d_tiles(DEPTHWISE_PARAMETERS)
{
    convolve_quads_4_2((uint)get_global_id(0), DEPTHWISE_ARGUMENTS);
}

kernel void depthwise_conv_2d_pixels(DEPTHWISE_PARAMETERS)
{
    convolve_quads_1_1((uint)get_global_id(0), DEPTHWISE_ARGUMENTS);
}

#if GROUP > 1
#define QUADS 8 // neighbours in memory for neighbouring work-items
#define SHARES (GROUP / QUADS)

VECTOR_KERNEL void depthwise_conv_2d_groups(DEPTHWISE_PARAMETERS)
{
    local SUM_T4 shared[GROUP];
    const int item = (int)get_local_id(0), group = (int)get_group_id(1);
    const int height = input.x, width = input.y, depth = input.z, aligned = input.w;
    const int blocks = ceil_divide(depth, 4 * QUADS), quad = group % blocks * QUADS + item % QUADS, pixel = group / blocks;
    const int c = min(4 * quad, depth - 4), line = pixel / output.y;
    const int top = line % output.x * steps.x - window.z, left = pixel % output.y * steps.y - window.w;

    SUM_T4 sum = 0;
    for (int tap = item / QUADS; 4 * quad < depth && tap < window.x * window.y; tap += SHARES) {
        const int iy = top + tap / window.y * steps.z, ix = left + tap % window.y * steps.w;
        if (inside(iy, height) && inside(ix, width)) {
            const SUM_T4 weight = CENTRED(LOAD_4(weights, tap * depth + c, FILTER_T), zeros.y);
            const int from = nhwc_offset(line / output.x, iy, ix, height, width, depth) + c;
            sum = ADD_PRODUCT(CENTRED(LOAD_4(src, from, T), zeros.x), weight, sum);
        }
    }
    shared[item] = sum;
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
    if (item >= QUADS || 4 * quad >= depth)
        return;
    for (int i = item + QUADS; i < GROUP; i += QUADS)
        sum += shared[i];
    STORE_QUAD(sum, QUAD_OF(c), pixel * depth + c);
}
#endif

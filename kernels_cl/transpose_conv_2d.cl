// SPDX-License-Identifier: Apache-2.0
// transpose_conv_2d.cl: TRANSPOSE_CONV_2D: any layout, filters known only at run time.
// Maths    y[b,oy,ox,o] = act(bias[o] + sum over fy, fx, i of (x[b,iy,ix,i] - zero_in) * (w[o,fy,fx,i] - zero_w))
//          over all taps with iy * stride.y - padding.y + fy = oy, ix alike, (iy, ix) inside the input
//          quantised: act(q) = clamp(multiply_by_quantized_multiplier(q, multipliers[o], shifts[o]) + zero_out, low, high)
// Tensors  src, dst of T, addressed by strides; weights [depth_out, filter height, filter width, depth_in] of FILTER_T, dense;
//          bias [depth_out] of T (float, half) or int (quantised); multipliers, shifts [depth_out] (quantised only)
// Units    strides in elements: src and dst (batch, y, x, channel)
//          input (height, width, depth, batches), output (height, width, depth, 0)
//          window (filter height, filter width, padding top, padding left), stride (y, x)
//          low, high: bounds of the activation, float (float, half) or quantised int
// Defines  T: float | half | uchar | char; FILTER_T: T, or char for per-channel weights (both required)
//          QUANTIZED: 0 | 1 (required); 1 with uchar and char
// Launch   global (>= batches * out_height * out_width * depth_out), local (64); one work-item per element, channels fastest
// Exact    quantised: bit for bit as TFLite's reference; float: fused multiply-adds in the order fy, fx, i
#ifndef T
#error "transpose_conv_2d.cl: define T"
#endif
#ifndef FILTER_T
#error "transpose_conv_2d.cl: define FILTER_T"
#endif
#ifndef QUANTIZED
#error "transpose_conv_2d.cl: define QUANTIZED"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"
#include "common/centred.h"

kernel void transpose_conv_2d(
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias,
#if QUANTIZED
    global const int *multipliers, global const int *shifts,
#endif
    global T *dst, int4 src_strides, int4 dst_strides, int4 input, int4 output, int4 window, int2 stride,
#if QUANTIZED
    int zero_in, int zero_filter, int zero_out,
#endif
    COMPUTE_T low, COMPUTE_T high)
{
    const int item = (int)get_global_id(0);
    const int out_height = output.x, out_width = output.y, depth_out = output.z;
    if (item >= input.w * out_height * out_width * depth_out)
        return;
    const int o = item % depth_out;
    const int ox = item / depth_out % out_width;
    const int oy = item / depth_out / out_width % out_height;
    const int b = item / depth_out / out_width / out_height;
    const int bottom = oy + window.z, right = ox + window.w, depth = input.z;

    COMPUTE_T sum = LOAD_BIAS(bias, o);
    for (int fy = bottom % stride.x; fy < window.x; fy += stride.x) {
        const int iy = (bottom - fy) / stride.x;
        for (int fx = right % stride.y; fx < window.y; fx += stride.y) {
            const int ix = (right - fx) / stride.y;
            if (fy > bottom || fx > right || iy >= input.x || ix >= input.y)
                continue;
            int from = b * src_strides.x + iy * src_strides.y + ix * src_strides.z;
            int tap = ((o * window.x + fy) * window.y + fx) * depth;
            for (int i = 0; i < depth; ++i, from += src_strides.w, ++tap)
                sum = ADD_PRODUCT(CENTRED(LOAD(src, from), zero_in), CENTRED(LOAD_FILTER(weights, tap), zero_filter), sum);
        }
    }
    const int to = b * dst_strides.x + oy * dst_strides.y + ox * dst_strides.z + o * dst_strides.w;
#if QUANTIZED
    STORE(dst, to, activate_int(multiply_by_quantized_multiplier(sum, multipliers[o], shifts[o]) + zero_out, low, high));
#else
    STORE(dst, to, activate(sum, low, high));
#endif
}

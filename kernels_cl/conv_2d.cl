// SPDX-License-Identifier: Apache-2.0
// conv_2d.cl: CONV_2D, DEPTHWISE_CONV_2D and grouped ones, FULLY_CONNECTED: any layout, filters known only at run time.
// Maths    y[b,oy,ox,o] = act(bias[o] + sum over fy, fx, i of (x[b,iy,ix,g+i] - zero_in) * (w[o,fy,fx,i] - zero_w)  [+ residual])
//          iy = oy * stride.y - padding.y + fy * dilation.y, ix alike; taps outside the image add nothing
//          g = o / outputs_per_group * group_depth: first input channel of the output channel's group
//          quantised: act(q) = clamp(multiply_by_quantized_multiplier(q, multipliers[o], shifts[o]) + zero_out, low, high),
//          if rounds_once with multiply_rounding_once
// Tensors  src, dst of T, weights of FILTER_T, addressed by strides; bias [depth_out] of T (float, half) or int (quantised)
//          multipliers, shifts [depth_out] (quantised only)
//          residual: as dst; read only if has_residual, else any buffer of T (float and half only)
// Units    strides in elements: src and dst (batch, y, x, channel), weights (output channel, y, x, input channel)
//          input (height, width, group_depth, outputs_per_group), output (height, width, depth, batches)
//          window (filter height, filter width, padding top, padding left), steps (stride y, x, dilation y, x)
//          low, high: bounds of the activation, float (float, half) or quantised int
// Defines  T: float | half | uchar | char; FILTER_T: T, or char for per-channel weights (both required)
//          QUANTIZED: 0 | 1 (required); 1 with uchar and char
// Launch   global (>= batches * out_height * out_width * depth_out), local (64); one work-item per element, channels fastest
// Exact    quantised: bit for bit as TFLite's reference; float: fused multiply-adds in the order fy, fx, i
#ifndef T
#error "conv_2d.cl: define T"
#endif
#ifndef FILTER_T
#error "conv_2d.cl: define FILTER_T"
#endif
#ifndef QUANTIZED
#error "conv_2d.cl: define QUANTIZED"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"
#include "common/centred.h"

kernel void conv_2d(
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias,
#if QUANTIZED
    global const int *multipliers, global const int *shifts,
#else
    global const T *residual, int has_residual,
#endif
    global T *dst, int4 src_strides, int4 dst_strides, int4 filter_strides, int4 input, int4 output, int4 window, int4 steps,
#if QUANTIZED
    int zero_in, int zero_filter, int zero_out, int rounds_once,
#endif
    COMPUTE_T low, COMPUTE_T high)
{
    const int item = (int)get_global_id(0);
    const int out_height = output.x, out_width = output.y, depth_out = output.z;
    if (item >= output.w * out_height * out_width * depth_out) {
        return;
    }
    const int o = item % depth_out;
    const int ox = item / depth_out % out_width;
    const int oy = item / depth_out / out_width % out_height;
    const int b = item / depth_out / out_width / out_height;
    const int height = input.x, width = input.y, group_depth = input.z;
    const int first = b * src_strides.x + o / input.w * group_depth * src_strides.w;
    const int top = oy * steps.x - window.z, left = ox * steps.y - window.w;

    COMPUTE_T sum = LOAD_BIAS(bias, o);
    for (int fy = 0; fy < window.x; ++fy) {
        const int iy = top + fy * steps.z;
        for (int fx = 0; fx < window.y; ++fx) {
            const int ix = left + fx * steps.w;
            if (!inside(iy, height) || !inside(ix, width)) {
                continue;
            }
            int from = first + iy * src_strides.y + ix * src_strides.z;
            int tap = o * filter_strides.x + fy * filter_strides.y + fx * filter_strides.z;
            for (int i = 0; i < group_depth; ++i, from += src_strides.w, tap += filter_strides.w)
                sum = ADD_PRODUCT(CENTRED(LOAD(src, from), zero_in), CENTRED(LOAD_FILTER(weights, tap), zero_filter), sum);
        }
    }
    const int to = b * dst_strides.x + oy * dst_strides.y + ox * dst_strides.z + o * dst_strides.w;
#if QUANTIZED
    const int value = rounds_once ? multiply_rounding_once(sum, multipliers[o], shifts[o])
                                  : multiply_by_quantized_multiplier(sum, multipliers[o], shifts[o]);
    STORE(dst, to, activate_int(value + zero_out, low, high));
#else
    if (has_residual) {
        sum = ROUND(sum) + LOAD(residual, to);
    }
    STORE(dst, to, activate(sum, low, high));
#endif
}

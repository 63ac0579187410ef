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
// Launch   *_quads: global (>= ceil(depth / 4) * ceil(out_width / 4) * out_height * batches), local (64); one work-item per 4 x 4, channels fastest
//          *_groups: global (GROUP, ceil(depth / 32) * out_width * out_height * batches), local (GROUP, 1); one group per output pixel and
//          32 channels, for few outputs of large windows
//          extra items return; the last four channels of a depth that is no multiple of 4 overlap their neighbours, which write the same
// Needs    depth >= 4
// Exact    quantised: bit for bit as TFLite's reference; float: fused multiply-adds in the order fy, fx (*_groups: of taps GROUP / 8 apart, then of
//          those sums), then the bias
#ifndef T
#error "depthwise_conv_2d.cl: define T"
#endif
#ifndef FILTER_T
#error "depthwise_conv_2d.cl: define FILTER_T"
#endif
#ifndef QUANTIZED
#error "depthwise_conv_2d.cl: define QUANTIZED"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"

#define PIXELS 4

#if T_IS_HALF
#define LOAD_4(p, i, type) (aligned ? vloada_half4(0, (p) + (i)) : vload_half4(0, (p) + (i)))
#define STORE_4(p, i, v) vstorea_half4_rte(v, 0, (p) + (i))
#elif T_IS_FLOAT
#define LOAD_4(p, i, type) (aligned ? *(global const JOIN(type, 4) *)((p) + (i)) : vload4(0, (p) + (i)))
#define STORE_4(p, i, v) (*(global JOIN(T, 4) *)((p) + (i)) = (v))
#else
#define LOAD_4(p, i, type) convert_int4(aligned ? *(global const JOIN(type, 4) *)((p) + (i)) : vload4(0, (p) + (i)))
#define STORE_4(p, i, v) (*(global JOIN(T, 4) *)((p) + (i)) = JOIN(JOIN(convert_, T), 4)(v))
#endif

#if QUANTIZED
typedef int BIAS_T;
typedef int4 SUM_T4;
#define PARAMETERS                                                                                                         \
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, global const int *multipliers,         \
        global const int *shifts, global T *dst, int4 input, int4 output, int4 window, int4 steps, int4 zeros,             \
        COMPUTE_T low, COMPUTE_T high
#define STORE_QUAD(sums, to) store_quad(sums, bias, multipliers, shifts, zeros.z, dst, to, c, aligned, low, high)
#define LOAD_BIAS(p, i) ((p)[i])
#define CENTRED(x, zero) ((x) - (zero))
#define MULTIPLY_ADD(a, b, sum) ((a) * (b) + (sum))
#else
typedef T BIAS_T;
typedef float4 SUM_T4;
#define PARAMETERS                                                                                                         \
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, global T *dst, int4 input, int4 output, \
        int4 window, int4 steps, COMPUTE_T low, COMPUTE_T high
#define STORE_QUAD(sums, to) store_quad(sums, bias, dst, to, c, aligned, low, high)
#define LOAD_BIAS LOAD
#define CENTRED(x, zero) (x)
#define MULTIPLY_ADD(a, b, sum) fma(a, b, sum)
#endif

// Writes the results of four channels from c on.
static inline void store_quad(SUM_T4 sums, global const BIAS_T *bias,
#if QUANTIZED
    global const int *multipliers, global const int *shifts, int zero_out,
#endif
    global T *dst, int to, int c, int aligned, COMPUTE_T low, COMPUTE_T high)
{
    COMPUTE_T values[4];
    vstore4(sums, 0, values);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        values[i] += LOAD_BIAS(bias, c + i);
#if QUANTIZED
        const int value = multiply_by_quantized_multiplier(values[i], multipliers[c + i], shifts[c + i]);
        values[i] = activate_int(value + zero_out, low, high);
#else
        values[i] = activate(values[i], low, high);
#endif
    }
    if (aligned)
        STORE_4(dst, to, vload4(0, values));
    else
        for (int i = 0; i < 4; ++i)
            STORE(dst, to + i, values[i]);
}

kernel void depthwise_conv_2d_quads(PARAMETERS)
{
    const int item = (int)get_global_id(0), height = input.x, width = input.y, depth = input.z, aligned = input.w;
    const int out_height = output.x, out_width = output.y;
    const int quads = ceil_divide(depth, 4), strips = ceil_divide(out_width, PIXELS);
    const int line = item / quads / strips;
    if (line >= output.w * out_height)
        return;
    const int c = min(item % quads * 4, depth - 4), first_x = item / quads % strips * PIXELS;
    const int oy = line % out_height, b = line / out_height;
    const int top = oy * steps.x - window.z, left = first_x * steps.y - window.w;

    SUM_T4 sums[PIXELS];
#pragma unroll
    for (int p = 0; p < PIXELS; ++p)
        sums[p] = (SUM_T4)(0);
    for (int fy = 0; fy < window.x; ++fy) {
        const int iy = top + fy * steps.z;
        if (!inside(iy, height))
            continue;
        for (int fx = 0; fx < window.y; ++fx) {
            const SUM_T4 weight = CENTRED(LOAD_4(weights, (fy * window.y + fx) * depth + c, FILTER_T), zeros.y);
#pragma unroll
            for (int p = 0; p < PIXELS; ++p) {
                const int ix = left + p * steps.y + fx * steps.w;
                if (inside(ix, width)) {
                    const int from = nhwc_offset(b, iy, ix, height, width, depth) + c;
                    sums[p] = MULTIPLY_ADD(CENTRED(LOAD_4(src, from, T), zeros.x), weight, sums[p]);
                }
            }
        }
    }
#pragma unroll
    for (int p = 0; p < PIXELS; ++p) {
        if (first_x + p >= out_width)
            break;
        STORE_QUAD(sums[p], nhwc_offset(b, oy, first_x + p, out_height, out_width, depth) + c);
    }
}

#if GROUP > 1
#define QUADS 8 // neighbours in memory for neighbouring work-items
#define SHARES (GROUP / QUADS)

VECTOR_KERNEL void depthwise_conv_2d_groups(PARAMETERS)
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
            sum = MULTIPLY_ADD(CENTRED(LOAD_4(src, from, T), zeros.x), weight, sum);
        }
    }
    shared[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item >= QUADS || 4 * quad >= depth)
        return;
    for (int i = item + QUADS; i < GROUP; i += QUADS)
        sum += shared[i];
    STORE_QUAD(sum, pixel * depth + c);
}
#endif

// SPDX-License-Identifier: Apache-2.0
// depthwise_quads.h: depthwise convolutions of multiplier 1, four channels at a time, as depthwise_conv_2d.cl says.
// Defines  T, FILTER_T, QUANTIZED (all required)
// Gives    DEPTHWISE_PARAMETERS, DEPTHWISE_ARGUMENTS: arguments, and their names; convolve_quads: a work-item's part
//          for kernels with these arguments: SUM_T4, LOAD_4, ADD_PRODUCT, STORE_QUAD
#ifndef T
#error "depthwise_quads.h: define T"
#endif
#ifndef FILTER_T
#error "depthwise_quads.h: define FILTER_T"
#endif
#ifndef QUANTIZED
#error "depthwise_quads.h: define QUANTIZED"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"
#include "common/centred.h"

#define STRIP 4 // pixels of a work-item

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
typedef int4 SUM_T4;
#define DEPTHWISE_PARAMETERS                                                                                               \
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, global const int *multipliers,         \
        global const int *shifts, global T *dst, int4 input, int4 output, int4 window, int4 steps, int4 zeros,             \
        COMPUTE_T low, COMPUTE_T high
#define DEPTHWISE_ARGUMENTS                                                                                                \
    src, weights, bias, multipliers, shifts, dst, input, output, window, steps, zeros, low, high
#define STORE_QUAD(sums, to) store_quad(sums, bias, multipliers, shifts, zeros.z, dst, to, c, aligned, low, high)
#define ADD_PRODUCT(a, b, sum) ((a) * (b) + (sum))
#else
typedef float4 SUM_T4;
#define DEPTHWISE_PARAMETERS                                                                                               \
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, global T *dst, int4 input, int4 output, \
        int4 window, int4 steps, COMPUTE_T low, COMPUTE_T high
#define DEPTHWISE_ARGUMENTS src, weights, bias, dst, input, output, window, steps, low, high
#define STORE_QUAD(sums, to) store_quad(sums, bias, dst, to, c, aligned, low, high)
#define ADD_PRODUCT(a, b, sum) fma(a, b, sum)
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

// Work-item `item` of as many as there are quads of channels in strips of pixels; others do nothing.
static inline void convolve_quads(int item, DEPTHWISE_PARAMETERS)
{
    const int height = input.x, width = input.y, depth = input.z, aligned = input.w;
    const int out_height = output.x, out_width = output.y;
    const int quads = ceil_divide(depth, 4), strips = ceil_divide(out_width, STRIP);
    const int line = item / quads / strips;
    if (line >= output.w * out_height)
        return;
    const int c = min(item % quads * 4, depth - 4), first_x = item / quads % strips * STRIP;
    const int oy = line % out_height, b = line / out_height;
    const int top = oy * steps.x - window.z, left = first_x * steps.y - window.w;

    SUM_T4 sums[STRIP];
#pragma unroll
    for (int p = 0; p < STRIP; ++p)
        sums[p] = (SUM_T4)(0);
    for (int fy = 0; fy < window.x; ++fy) {
        const int iy = top + fy * steps.z;
        if (!inside(iy, height))
            continue;
        for (int fx = 0; fx < window.y; ++fx) {
            const SUM_T4 weight = CENTRED(LOAD_4(weights, (fy * window.y + fx) * depth + c, FILTER_T), zeros.y);
#pragma unroll
            for (int p = 0; p < STRIP; ++p) {
                const int ix = left + p * steps.y + fx * steps.w;
                if (inside(ix, width)) {
                    const int from = nhwc_offset(b, iy, ix, height, width, depth) + c;
                    sums[p] = ADD_PRODUCT(CENTRED(LOAD_4(src, from, T), zeros.x), weight, sums[p]);
                }
            }
        }
    }
#pragma unroll
    for (int p = 0; p < STRIP; ++p) {
        if (first_x + p >= out_width)
            break;
        STORE_QUAD(sums[p], nhwc_offset(b, oy, first_x + p, out_height, out_width, depth) + c);
    }
}

// SPDX-License-Identifier: Apache-2.0
// grouped_conv_2d.cl: GROUPED_CONV_2D of few channels to a group, for CPUs; conv_2d.cl takes every other.
// Maths    y[b,oy,ox,c] = act(sum over fy, fx, s of x[b,iy,ix,first(c) + (c + s) % GROUP_DEPTH] * w[c,fy,fx,s] + bias[c]),
//          iy = oy * strides.x + fy * strides.z - offsets.x, ix alike with strides.yw, offsets.y; first(c): the first channel of c's group
//          quantised: x less zeros.x; multiply_by_quantized_multiplier(sum, mantissas[c], exponents[c]) + zeros.y
// Tensors  src [batches, height, width, depth], dst [batches, out_height, out_width, depth] of T, dense
//          weights float [depth / 16, filter_height * filter_width, GROUP_DEPTH (s), 16]; bias [depth], float or int;
//          mantissas, exponents int [depth]
// Units    in (height, width, depth), out (batches, out_height, out_width); filter (height, width); strides (height, width,
//          dilation_height, dilation_width); offsets: padding (top, left); zeros: zero points (src, dst); low, high: bounds
// Defines  T: float | half | uchar | char (required)
//          GROUP_DEPTH: 2 | 4 | 8 | 16 channels of a group, in and out (required)
//          QUANTIZED: 0 | 1 (required)
// Launch   global (depth / 16, batches * out_height), local (1, 1); one work-item per sixteen channels of a row
// Needs    depth a multiple of 16; quantised: |sum of products| < 2^24
// Exact    quantised: yes, sums are exact in float; float: in the order of fy, fx, s
#if !defined(T) || !defined(GROUP_DEPTH) || !defined(QUANTIZED)
#error "grouped_conv_2d.cl: define T, GROUP_DEPTH and QUANTIZED"
#endif

#include "common/types.h"
#include "common/quant.h"

#define PIXELS 4 // outputs in a row that share the weights they load

// Every channel takes the place of the one before in its group, the first that of the last.
#if GROUP_DEPTH == 2
#define NEXT_OF_GROUP(x) x.s1032547698badcfe
#elif GROUP_DEPTH == 4
#define NEXT_OF_GROUP(x) x.s123056749ab8defc
#elif GROUP_DEPTH == 8
#define NEXT_OF_GROUP(x) x.s123456709abcdef8
#else
#define NEXT_OF_GROUP(x) x.s123456789abcdef0
#endif

#if QUANTIZED
#define INPUT16(p, i) (WIDEN(LOAD16(p, i), float16) - (float)zeros.x)
#define SCALINGS global const int *bias, global const int *mantissas, global const int *exponents
#else
#define INPUT16(p, i) LOAD16(p, i)
#define SCALINGS global const float *bias
#endif

TILE_KERNEL void grouped_conv_2d(global const T *src, global const float *weights, SCALINGS, global T *dst, int4 in, int4 out, int2 filter,
    int4 strides, int2 offsets, int2 zeros, COMPUTE_T low, COMPUTE_T high)
{
    const int block = (int)get_global_id(0), row = (int)get_global_id(1);
    const int c = block * 16, b = row / out.y, top = row % out.y * strides.x - offsets.x;
    for (int first = 0; first < out.z; first += PIXELS) {
        float16 sums[PIXELS];
        int lefts[PIXELS];
#pragma unroll
        for (int k = 0; k < PIXELS; ++k) {
            sums[k] = 0.0f;
            lefts[k] = min(first + k, out.z - 1) * strides.y - offsets.y;
        }
        for (int fy = 0; fy < filter.x; ++fy) {
            const int y = top + fy * strides.z;
            if (y < 0 || y >= in.x)
                continue;
            for (int fx = 0; fx < filter.y; ++fx) {
                global const float *w = weights + ((block * filter.x + fy) * filter.y + fx) * GROUP_DEPTH * 16;
                float16 x[PIXELS];
#pragma unroll
                for (int k = 0; k < PIXELS; ++k) {
                    const int at = lefts[k] + fx * strides.w;
                    x[k] = at >= 0 && at < in.y ? INPUT16(src, ((b * in.x + y) * in.y + at) * in.z + c) : (float16)0.0f;
                }
#pragma unroll
                for (int s = 0; s < GROUP_DEPTH; ++s) {
                    const float16 factors = vload16(s, w);
#pragma unroll
                    for (int k = 0; k < PIXELS; ++k) {
                        sums[k] = mad(x[k], factors, sums[k]);
                        x[k] = NEXT_OF_GROUP(x[k]);
                    }
                }
            }
        }
#pragma unroll
        for (int k = 0; k < PIXELS; ++k) {
#if QUANTIZED
            const int16 sum = WIDEN(sums[k], int16) + vload16(block, bias);
            const COMPUTE_T16 y = multiply_by_quantized_multiplier16(sum, vload16(block, mantissas), vload16(block, exponents)) + zeros.y;
#else
            const COMPUTE_T16 y = sums[k] + vload16(block, bias);
#endif
            if (first + k < out.z)
                STORE16(dst, (row * out.z + first + k) * in.z + c, y < (COMPUTE_T16)low ? (COMPUTE_T16)low : y > (COMPUTE_T16)high ? (COMPUTE_T16)high : y);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// depthwise_quads.h: depthwise convolutions of multiplier 1, four channels at a time, as depthwise_conv_2d.cl says.
// Defines  T, FILTER_T, QUANTIZED (all required)
// Gives    DEPTHWISE_PARAMETERS, DEPTHWISE_ARGUMENTS: arguments, and their names; convolve_quads_4, convolve_quads_1: a
//          work-item's part, of a strip of four pixels or of one
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

#if T_IS_HALF
#define LOAD_ALIGNED_4(p, i, type) vloada_half4(0, (p) + (i))
#define LOAD_4(p, i, type) (aligned ? vloada_half4(0, (p) + (i)) : vload_half4(0, (p) + (i)))
#define STORE_4(p, i, v) vstorea_half4_rte(v, 0, (p) + (i))
#elif T_IS_FLOAT
#define LOAD_ALIGNED_4(p, i, type) (*(global const JOIN(type, 4) *)((p) + (i)))
#define LOAD_4(p, i, type) (aligned ? LOAD_ALIGNED_4(p, i, type) : vload4(0, (p) + (i)))
#define STORE_4(p, i, v) (*(global JOIN(T, 4) *)((p) + (i)) = (v))
#else
#define LOAD_ALIGNED_4(p, i, type) convert_int4(*(global const JOIN(type, 4) *)((p) + (i)))
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
#define ADD_PRODUCT(a, b, sum) ((a) * (b) + (sum))
#else
typedef float4 SUM_T4;
#define DEPTHWISE_PARAMETERS                                                                                               \
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, global T *dst, int4 input, int4 output, \
        int4 window, int4 steps, COMPUTE_T low, COMPUTE_T high
#define DEPTHWISE_ARGUMENTS src, weights, bias, dst, input, output, window, steps, low, high
#define ADD_PRODUCT(a, b, sum) fma(a, b, sum)
#endif

// Bias and scales of four channels.
typedef struct {
    SUM_T4 bias;
#if QUANTIZED
    int4 multipliers, shifts;
#endif
} Quad;

#define FOUR_OF(LOADER, p, i) (LOADER(p, i), LOADER(p, (i) + 1), LOADER(p, (i) + 2), LOADER(p, (i) + 3))
#define ELEMENT(p, i) ((p)[i])
#if QUANTIZED
#define QUAD_OF(c)                                                                                                         \
    ((Quad){(SUM_T4)FOUR_OF(LOAD_BIAS, bias, c), (int4)FOUR_OF(ELEMENT, multipliers, c), (int4)FOUR_OF(ELEMENT, shifts, c)})
#define STORE_QUAD(sums, quad, to) store_quad(sums, quad, zeros.z, dst, to, aligned, low, high)
#else
#define QUAD_OF(c) ((Quad){(SUM_T4)FOUR_OF(LOAD_BIAS, bias, c)})
#define STORE_QUAD(sums, quad, to) store_quad(sums, quad, 0, dst, to, aligned, low, high)
#endif

// Writes the results of four channels.
static inline void store_quad(SUM_T4 sums, Quad quad, int zero_out, global T *dst, int to, int aligned, COMPUTE_T low, COMPUTE_T high)
{
    COMPUTE_T values[4];
    vstore4(sums + quad.bias, 0, values);
#if QUANTIZED
    int multipliers[4], shifts[4];
    vstore4(quad.multipliers, 0, multipliers);
    vstore4(quad.shifts, 0, shifts);
#endif
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#if QUANTIZED
        values[i] = activate_int(multiply_by_quantized_multiplier(values[i], multipliers[i], shifts[i]) + zero_out, low, high);
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

#ifndef UNROLLED
#define UNROLLED _Pragma("unroll")
#endif

// add_line_TAPS_STRIDE_STRIP: adds the taps of one line of a filter of known width to the sums of so many pixels. `line`: pixel 0 of
// the line of the image, `left`: the pixel under the first tap of the first sum. Every pixel is read once, those outside of the image at
// its edge, so that no read waits for a decision.
#define ADD_LINE(TAPS, STRIDE, STRIP)                                                                                      \
    static inline void add_line_##TAPS##_##STRIDE##_##STRIP(SUM_T4 *sums, global const T *line, global const FILTER_T *weights, \
        int left, int width, int depth, int2 zeros, int is_inside)                                                         \
    {                                                                                                                      \
        SUM_T4 taps[TAPS], pixels[(STRIP - 1) * STRIDE + TAPS];                                                            \
        UNROLLED for (int fx = 0; fx < TAPS; ++fx)                                                                         \
            taps[fx] = CENTRED(LOAD_ALIGNED_4(weights, fx * depth, FILTER_T), zeros.y);                                    \
        UNROLLED for (int i = 0; i < (STRIP - 1) * STRIDE + TAPS; ++i)                                                     \
            pixels[i] = CENTRED(LOAD_ALIGNED_4(line, clamp(left + i, 0, width - 1) * depth, T), zeros.x);                  \
        UNROLLED for (int i = 0; i < (STRIP - 1) * STRIDE + TAPS; ++i)                                                     \
            if (is_inside && inside(left + i, width))                                                                      \
                UNROLLED for (int p = 0; p < STRIP; ++p)                                                                   \
                    if (i - p * STRIDE >= 0 && i - p * STRIDE < TAPS)                                                      \
                        sums[p] = ADD_PRODUCT(pixels[i], taps[i - p * STRIDE], sums[p]);                                   \
    }

#define EVERY_LINE(LINES, ADD)                                                                                             \
    for (int fy = 0; fy < (LINES); ++fy) {                                                                                 \
        const int iy = top + fy;                                                                                           \
        ADD(sums, src + nhwc_offset(b, clamp(iy, 0, height - 1), 0, height, width, depth) + c,                             \
            weights + fy * window.y * depth + c, left, width, depth, centres, inside(iy, height));                         \
    }

// convolve_quads_STRIP: work-item `item` of as many as there are quads of channels in strips of so many pixels; others do nothing.
// UNROLL: whether all lines of a filter are read at once, which takes registers and saves waiting.
#define CONVOLVE_QUADS(STRIP, UNROLL)                                                                                      \
    ADD_LINE(3, 1, STRIP)                                                                                                  \
    ADD_LINE(3, 2, STRIP)                                                                                                  \
                                                                                                                           \
    static inline void convolve_quads_##STRIP(int item, DEPTHWISE_PARAMETERS)                                              \
    {                                                                                                                      \
        const int height = input.x, width = input.y, depth = input.z, aligned = input.w;                                   \
        const int out_height = output.x, out_width = output.y;                                                             \
        const int quads = ceil_divide(depth, 4), strips = ceil_divide(out_width, STRIP);                                   \
        const int strip = item / quads, line = strip / strips;                                                             \
        if (line >= output.w * out_height)                                                                                 \
            return;                                                                                                        \
        const int c = min((item - strip * quads) * 4, depth - 4), first_x = (strip - line * strips) * STRIP;               \
        const int b = line / out_height, oy = line - b * out_height;                                                       \
        const int top = oy * steps.x - window.z, left = first_x * steps.y - window.w;                                      \
        const int is_known = aligned && window.x == 3 && window.y == 3 && steps.z == 1 && steps.w == 1;                    \
        const int2 centres = CENTRES;                                                                                      \
        const Quad quad = QUAD_OF(c);                                                                                      \
        SUM_T4 sums[STRIP];                                                                                                \
        UNROLLED for (int p = 0; p < STRIP; ++p)                                                                           \
            sums[p] = (SUM_T4)(0);                                                                                         \
        if (is_known && steps.y == 1) {                                                                                    \
            UNROLL EVERY_LINE(3, add_line_3_1_##STRIP)                                                                     \
        } else if (is_known && steps.y == 2) {                                                                             \
            UNROLL EVERY_LINE(3, add_line_3_2_##STRIP)                                                                     \
        } else {                                                                                                           \
            for (int fy = 0; fy < window.x; ++fy) {                                                                        \
                const int iy = top + fy * steps.z;                                                                         \
                if (inside(iy, height))                                                                                    \
                    add_any_line(sums, src + nhwc_offset(b, iy, 0, height, width, depth) + c,                              \
                        weights + fy * window.y * depth + c, left, width, depth, aligned, centres, window.y, steps, STRIP); \
            }                                                                                                              \
        }                                                                                                                  \
        UNROLLED for (int p = 0; p < STRIP; ++p)                                                                           \
            if (first_x + p < out_width)                                                                                   \
                STORE_QUAD(sums[p], quad, nhwc_offset(b, oy, first_x + p, out_height, out_width, depth) + c);              \
    }

// The same for any width, stride, dilation and alignment.
static inline void add_any_line(SUM_T4 *sums, global const T *line, global const FILTER_T *weights, int left, int width, int depth,
    int aligned, int2 zeros, int taps, int4 steps, const int strip)
{
    for (int fx = 0; fx < taps; ++fx) {
        const SUM_T4 weight = CENTRED(LOAD_4(weights, fx * depth, FILTER_T), zeros.y);
#pragma unroll
        for (int p = 0; p < strip; ++p) {
            const int ix = left + p * steps.y + fx * steps.w;
            if (inside(ix, width))
                sums[p] = ADD_PRODUCT(CENTRED(LOAD_4(line, ix * depth, T), zeros.x), weight, sums[p]);
        }
    }
}

#if QUANTIZED
#define CENTRES zeros.xy
#else
#define CENTRES (int2)(0, 0)
#endif
#define ONE_AFTER_THE_OTHER _Pragma("unroll 1")
#define ALL_AT_ONCE UNROLLED
CONVOLVE_QUADS(4, ONE_AFTER_THE_OTHER) // for many
CONVOLVE_QUADS(1, ALL_AT_ONCE)         // for so few that each work-item has one pixel, and waits for it

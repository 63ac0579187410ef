// SPDX-License-Identifier: Apache-2.0
// depthwise_quads.h: depthwise convolutions of multiplier 1, four channels at a time, as depthwise_conv_2d.cl says.
// Defines  T, FILTER_T, QUANTIZED (all required)
// Gives    DEPTHWISE_PARAMETERS, DEPTHWISE_ARGUMENTS: arguments, and their names
//          CONVOLVE_QUADS(STRIP, LINES, ALIGNED, WHOLE): defines convolve_quads_STRIP_LINES, a work-item's part: a tile of lines of so many pixels
//          for kernels with these arguments: SUM_T4, LOAD_4, STORE_QUAD
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
#define LOAD_ALIGNED_4(p, i, type) HALVES(4, (p) + (i))
#define LOAD_4(p, i, type) (aligned ? HALVES(4, (p) + (i)) : vload_half4(0, (p) + (i)))
#define STORE_4(p, i, v) PUT_HALVES(4, (p) + (i), v)
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
#else
typedef float4 SUM_T4;
#define DEPTHWISE_PARAMETERS                                                                                               \
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, global T *dst, int4 input, int4 output, \
        int4 window, int4 steps, COMPUTE_T low, COMPUTE_T high
#define DEPTHWISE_ARGUMENTS src, weights, bias, dst, input, output, window, steps, low, high
#endif

// Bias and scales of four channels.
typedef struct {
    SUM_T4 bias;
#if QUANTIZED
    int4 multipliers, shifts;
#endif
} Quad;

#if QUANTIZED
#define INTS_4(p, i) (aligned ? *(global const int4 *)((p) + (i)) : vload4(0, (p) + (i)))
#define QUAD_OF(c) ((Quad){INTS_4(bias, c), INTS_4(multipliers, c), INTS_4(shifts, c)})
#define STORE_QUAD(sums, quad, to) store_quad(sums, quad, zeros.z, dst, to, aligned, low, high)
#else
#define QUAD_OF(c) ((Quad){LOAD_4(bias, c, T)})
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

// A pixel of a filter of 3 x 3, and a product added to a sum, where the image has it (`counts`). Real numbers outside of the image are not
// added. Bytes outside are the zero point, so that all taps count, and the zero point is taken off at once: the sum of (x - zero) * w is
// that of x * w, less zero times that of w.
#if QUANTIZED
#define CENTRES zeros.xy
#define PIXEL(p, i, counts, zero) pixel_or_zero(*(global const JOIN(T, 4) *)((p) + (i)), counts, zero)

static inline int4 pixel_or_zero(JOIN(T, 4) x, int counts, JOIN(T, 4) zero)
{
    const uint bits = counts ? as_uint(x) : as_uint(zero); // as one word: one instruction
    return convert_int4(JOIN(as_, JOIN(T, 4))(bits));
}

#define ADD_IF(counts, a, b, sum) ADD_PRODUCT(a, b, sum)
#define ZERO_PIXEL(zero) (JOIN(T, 4))((T)(zero))
#define OF_ZERO(taps, zero) \
    (-(zero) * (taps[0] + taps[1] + taps[2] + taps[3] + taps[4] + taps[5] + taps[6] + taps[7] + taps[8]))
#else
#define CENTRES (int2)(0, 0)
#define PIXEL(p, i, counts, zero) LOAD_ALIGNED_4(p, i, T)
#define ADD_IF(counts, a, b, sum) sum_if(counts, ADD_PRODUCT(a, b, sum), sum)

static inline float4 sum_if(int counts, float4 sum, float4 before)
{
    return counts ? sum : before;
}

#define ZERO_PIXEL(zero) (zero)
#define OF_ZERO(taps, zero) (SUM_T4)(0)
#endif

// add_tile_STRIDE_STRIP_LINES: what a filter of 3 x 3 gives for a tile of so many lines and pixels of the output. `image`, `weights`: the
// channels of pixel 0 and of tap 0, `top`, `left`: the pixel under the first tap of the first sum. Every pixel is read and widened once.
// is_whole: the image has all the pixels; where not, those outside are read at its edge, so that no read waits for a decision.
#define ADD_TILE(STRIDE, STRIP, LINES)                                                                                     \
    static INLINE void add_tile_##STRIDE##_##STRIP##_##LINES(SUM_T4 *sums, global const T *image, global const FILTER_T *weights, \
        int top, int left, int height, int width, int depth, int2 zeros, const int is_whole)                               \
    {                                                                                                                      \
        SUM_T4 taps[9], pixels[(STRIP - 1) * STRIDE + 3];                                                                  \
        int columns[(STRIP - 1) * STRIDE + 3];                                                                             \
        UNROLLED for (int t = 0; t < 9; ++t)                                                                               \
            taps[t] = CENTRED(LOAD_ALIGNED_4(weights, t * depth, FILTER_T), zeros.y);                                      \
        UNROLLED for (int i = 0; i < (STRIP - 1) * STRIDE + 3; ++i)                                                        \
            columns[i] = (is_whole ? left + i : clamp(left + i, 0, width - 1)) * depth;                                    \
        UNROLLED for (int s = 0; s < LINES * STRIP; ++s)                                                                   \
            sums[s] = OF_ZERO(taps, zeros.x);                                                                              \
        UNROLLED for (int line = 0; line < (LINES - 1) * STRIDE + 3; ++line) {                                             \
            const int has_line = is_whole | inside(top + line, height);                                                    \
            global const T *from = image + (is_whole ? top + line : clamp(top + line, 0, height - 1)) * width * depth;     \
            UNROLLED for (int i = 0; i < (STRIP - 1) * STRIDE + 3; ++i)                                                    \
                pixels[i] = PIXEL(from, columns[i], is_whole | (has_line & inside(left + i, width)), ZERO_PIXEL(zeros.x)); \
            UNROLLED for (int i = 0; i < (STRIP - 1) * STRIDE + 3; ++i)                                                    \
                UNROLLED for (int s = 0; s < LINES * STRIP; ++s) {                                                         \
                    const int fy = line - s / STRIP * STRIDE, fx = i - s % STRIP * STRIDE;                                 \
                    if (fy >= 0 && fy < 3 && fx >= 0 && fx < 3)                                                            \
                        sums[s] = ADD_IF(is_whole | (has_line & inside(left + i, width)), pixels[i], taps[fy * 3 + fx], sums[s]); \
                }                                                                                                          \
        }                                                                                                                  \
    }

// Adds the taps of a line of any filter to the sums of `strip` pixels, for any stride, dilation and alignment.
static INLINE void add_any_line(SUM_T4 *sums, global const T *line, global const FILTER_T *weights, int left, int width, int depth,
    int aligned, int2 zeros, int taps, int4 steps, const int strip)
{
    for (int fx = 0; fx < taps; ++fx) {
        const SUM_T4 weight = CENTRED(LOAD_4(weights, fx * depth, FILTER_T), zeros.y);
        UNROLLED for (int p = 0; p < 4; ++p) { // a bound that is known here, so that no sum is in memory
            const int ix = left + p * steps.y + fx * steps.w;
            if (p < strip && inside(ix, width))
                sums[p] = ADD_PRODUCT(CENTRED(LOAD_4(line, ix * depth, T), zeros.x), weight, sums[p]);
        }
    }
}

// convolve_quads_STRIP_LINES: work-item `item` of as many as there are quads of channels in tiles of so many pixels and lines; others do
// nothing. The last tiles overlap their neighbours, which write the same: the output has STRIP pixels in a line and LINES lines or more.
// ALIGNED: whether the depth is a multiple of 4. WHOLE: 1: tiles inside of the image have code of their own, which is faster, but takes more
// registers.
#define ONE_AFTER_THE_OTHER _Pragma("unroll 1")
#define CONVOLVE_QUADS(STRIP, LINES, ALIGNED, WHOLE)                                                                       \
    ADD_TILE(1, STRIP, LINES)                                                                                              \
    ADD_TILE(2, STRIP, LINES)                                                                                              \
                                                                                                                           \
    static INLINE void convolve_quads_##STRIP##_##LINES(uint item, DEPTHWISE_PARAMETERS)                                   \
    {                                                                                                                      \
        const int height = input.x, width = input.y, depth = input.z, aligned = ALIGNED;                                   \
        const int out_height = output.x, out_width = output.y;                                                             \
        const uint quads = ceil_divide(depth, 4), strips = ceil_divide(out_width, STRIP);                                  \
        const uint bands = ceil_divide(out_height, LINES), strip = item / quads, band = strip / strips, b = band / bands;  \
        if (b >= (uint)output.w)                                                                                           \
            return;                                                                                                        \
        const int c = min((int)(item - strip * quads) * 4, depth - 4);                                                     \
        const int oy = min((int)(band - b * bands) * LINES, out_height - LINES);                                           \
        const int ox = min((int)(strip - band * strips) * STRIP, out_width - STRIP);                                       \
        const int top = oy * steps.x - window.z, left = ox * steps.y - window.w;                                           \
        const int is_known = aligned && window.x == 3 && window.y == 3 && steps.z == 1 && steps.w == 1 && steps.x == steps.y \
                             && (steps.x == 1 || steps.x == 2);                                                            \
        const int is_whole = WHOLE && top >= 0 && top + (LINES - 1) * steps.x + 3 <= height                                \
                             && left >= 0 && left + (STRIP - 1) * steps.y + 3 <= width;                                    \
        const int2 centres = CENTRES;                                                                                      \
        const Quad quad = QUAD_OF(c);                                                                                      \
        const int first = nhwc_offset((int)b, oy, ox, out_height, out_width, depth) + c;                                   \
        global const T *image = src + (int)b * height * width * depth + c;                                                 \
        weights += c;                                                                                                      \
        if (is_known) {                                                                                                    \
            SUM_T4 sums[LINES * STRIP];                                                                                    \
            if (steps.x == 1 && is_whole)                                                                                  \
                add_tile_1_##STRIP##_##LINES(sums, image, weights, top, left, height, width, depth, centres, 1);           \
            else if (steps.x == 1)                                                                                         \
                add_tile_1_##STRIP##_##LINES(sums, image, weights, top, left, height, width, depth, centres, 0);           \
            else if (is_whole)                                                                                             \
                add_tile_2_##STRIP##_##LINES(sums, image, weights, top, left, height, width, depth, centres, 1);           \
            else                                                                                                           \
                add_tile_2_##STRIP##_##LINES(sums, image, weights, top, left, height, width, depth, centres, 0);           \
            UNROLLED for (int s = 0; s < LINES * STRIP; ++s)                                                               \
                STORE_QUAD(sums[s], quad, first + (s / STRIP * out_width + s % STRIP) * depth);                            \
        } else {                                                                                                           \
            ONE_AFTER_THE_OTHER for (int line = 0; line < LINES; ++line) {                                                 \
                SUM_T4 sums[STRIP];                                                                                        \
                UNROLLED for (int p = 0; p < STRIP; ++p)                                                                   \
                    sums[p] = (SUM_T4)(0);                                                                                 \
                for (int fy = 0; fy < window.x; ++fy) {                                                                    \
                    const int iy = top + line * steps.x + fy * steps.z;                                                    \
                    if (inside(iy, height))                                                                                \
                        add_any_line(sums, image + iy * width * depth, weights + fy * window.y * depth, left, width, depth, aligned, \
                            centres, window.y, steps, STRIP);                                                              \
                }                                                                                                          \
                UNROLLED for (int p = 0; p < STRIP; ++p)                                                                   \
                    STORE_QUAD(sums[p], quad, first + (line * out_width + p) * depth);                                     \
            }                                                                                                              \
        }                                                                                                                  \
    }

// SPDX-License-Identifier: Apache-2.0
// conv_2d_packed.cl: CONV_2D with constant, packed weights, for CPU-type devices; also FULLY_CONNECTED.
// Maths    y[b,oy,ox,o] = act(bias[o] + sum over fy, fx, i of (x[b,iy,ix,i] - zero_in) * (w[o,fy,fx,i] - zero_w)  [+ residual])
//          iy = oy * stride_height - padding_top + fy * dilation_height, ix alike; taps outside the image add nothing
//          quantised: act(q) = clamp(multiply_by_quantized_multiplier(q, multiplier[o], shift[o]) + zero_out, low, high)
// Tensors  src [batches, height, width, depth_in] of T, dst [batches, out_height, out_width, depth_out] of T, dense
//          weights float, packed: [ceil(depth_out / 16)][taps * depth_in][16], k = (fy * filter_width + fx) * depth_in + i,
//          zero_w subtracted, missing channels 0; 64-byte aligned (packing.py: pack_conv_weights)
//          bias [ceil(depth_out / 16) * 16] of float (float, half) or int (quantised), 64-byte aligned
//          multipliers, shifts: int, as long and aligned as bias (quantised only)
//          residual: as dst, not dst itself; read only if has_residual, else any buffer of T (float and half only)
// Units    low, high: bounds of the activation, float (float, half) or quantised int; zero_in, zero_out quantised
//          tiles_per_item: pixel tiles of TILE_PIXELS each; blocks_per_item: pairs of 16-channel blocks
// Defines  T: float | half | uchar | char (required)
//          QUANTIZED: 0 | 1 (required); 1 with uchar and char
//          TILE_PIXELS: output pixels of a register tile, 2 accumulators each
//          DEPTH_CHUNK: longest run of k staged at once, a multiple of 16
// Launch   global (ceil(tiles / tiles_per_item), ceil(blocks / blocks_per_item)), local (1, 1), where
//          tiles = ceil(batches * out_height * out_width / TILE_PIXELS), blocks = ceil(depth_out / 32)
//          one work-item computes blocks_per_item * 32 channels of tiles_per_item * TILE_PIXELS pixels, row-major over b, oy, ox
//          FULLY_CONNECTED: batches 1, height 1, width = rows, filter, strides and dilations 1, padding 0
//          src may hold at most 2^31 - 1 elements, dst too
// Exact    quantised: bit for bit as TFLite's reference if chunk (a multiple of 16, 16..DEPTH_CHUNK) keeps every partial sum of a
//          chunk's products within 2^24; 256 always does, packing.py: exact_chunk finds a longer one from the weights
//          float: fused multiply-adds in ascending k within a chunk, chunks added in order; chunk = DEPTH_CHUNK
#ifndef T
#error "conv_2d_packed.cl: define T"
#endif
#ifndef QUANTIZED
#error "conv_2d_packed.cl: define QUANTIZED"
#endif
#ifndef TILE_PIXELS
#define TILE_PIXELS 7
#endif
#ifndef DEPTH_CHUNK
#define DEPTH_CHUNK 512
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"

// Copies overrun by up to 15 elements; the width also keeps rows off the same cache sets.
#define STAGE_WIDTH (DEPTH_CHUNK + 16)
#define PIXELS _Pragma("unroll") for (int p = 0; p < TILE_PIXELS; ++p)

typedef struct __attribute__((packed)) {
    float16 value;
} UnalignedFloat16;

#define STAGE_T float
#define STAGE16(stage, value16) (((UnalignedFloat16 *)(stage))->value = (value16))
#if QUANTIZED
#define STAGED(src, i, zero) (float)(LOAD(src, i) - (zero))
#define STAGED16(src, i, zero) WIDEN(LOAD16(src, i) - (zero), float16)
#else
#define STAGED(src, i, zero) LOAD(src, i)
#define STAGED16(src, i, zero) LOAD16(src, i)
#endif
#define STAGED_PADDING16(zero) (float16)(0.0f)
#include "common/window.h"

static inline void store_partial(global T *dst, int offset, COMPUTE_T16 value, int count)
{
    COMPUTE_T lanes[16];
    vstore16(value, 0, lanes);
    for (int i = 0; i < count; ++i)
        STORE(dst, offset + i, lanes[i]);
}

#if !QUANTIZED
static inline float16 load_partial(global const T *src, int offset, int count)
{
    float lanes[16];
    for (int i = 0; i < 16; ++i)
        lanes[i] = i < count ? LOAD(src, offset + i) : 0.0f;
    return vload16(0, lanes);
}
#endif

// Scales, activates and stores `count` channels of `rows` pixels, from element `offset` of dst on.
static inline void finish_block(global T *dst, const COMPUTE_T16 *totals, int rows, int offset, int depth_out, int count,
#if QUANTIZED
                                int16 multiplier, int16 shift, int zero_out,
#else
                                global const T *residual, int has_residual,
#endif
                                COMPUTE_T low, COMPUTE_T high)
{
    for (int p = 0; p < rows; ++p, offset += depth_out) {
#if QUANTIZED
        const int16 value = activate_int16(multiply_by_quantized_multiplier16(totals[p], multiplier, shift) + zero_out, low, high);
#else
        float16 value = totals[p];
        if (has_residual)
            value += count == 16 ? LOAD16(residual, offset) : load_partial(residual, offset, count);
        value = activate16(value, low, high);
#endif
        if (count == 16)
            STORE16(dst, offset, value);
        else
            store_partial(dst, offset, value, count);
    }
}

TILE_KERNEL void conv_2d_packed(
    global const T *restrict src, global const float *restrict weights, global const COMPUTE_T *restrict bias,
#if QUANTIZED
    global const int *restrict multipliers, global const int *restrict shifts,
#else
    global const T *residual, int has_residual,
#endif
    global T *restrict dst,
    int batches, int height, int width, int depth_in, int out_height, int out_width, int depth_out,
    int filter_height, int filter_width, int stride_height, int stride_width, int dilation_height, int dilation_width,
    int padding_top, int padding_left, int tiles_per_item, int blocks_per_item, int chunk,
#if QUANTIZED
    int zero_in, int zero_out,
#endif
    COMPUTE_T low, COMPUTE_T high)
{
#if !QUANTIZED
    const int zero_in = 0;
#endif
    const InputView view = input_view(batches, height, width, depth_in, out_height, out_width, filter_height, filter_width,
                                      stride_height, stride_width, dilation_height, dilation_width, padding_top, padding_left, zero_in);
    const int pixels = batches * out_height * out_width;
    const int depth = filter_height * filter_width * depth_in;
    const int first_tile = get_global_id(0) * tiles_per_item;
    const int last_tile = min(first_tile + tiles_per_item, ceil_divide(pixels, TILE_PIXELS));
    const int first_block = get_global_id(1) * blocks_per_item;
    const int last_block = min(first_block + blocks_per_item, ceil_divide(depth_out, 32));
    float16 stage_vectors[TILE_PIXELS * STAGE_WIDTH / 16]; // for its alignment
    float *const stage = (float *)stage_vectors;

    for (int tile = first_tile; tile < last_tile; ++tile) {
        const int first_pixel = tile * TILE_PIXELS;
        const int rows = min(TILE_PIXELS, pixels - first_pixel);
        for (int block = first_block; block < last_block; ++block) {
            const int channel = block * 32;
            const int halves = depth_out - channel > 16 ? 2 : 1;
            global const float16 *w0 = (global const float16 *)weights + (size_t)(2 * block) * depth;
            global const float16 *w1 = w0 + depth;
            global const COMPUTE_T16 *start = (global const COMPUTE_T16 *)bias + 2 * block;
            COMPUTE_T16 totals0[TILE_PIXELS], totals1[TILE_PIXELS];
            for (int k0 = 0; k0 < depth; k0 += chunk) {
                const int count = min(chunk, depth - k0);
                if (block == first_block || depth > chunk) {
                    for (int p = rows; p < TILE_PIXELS; ++p)
                        stage_padding(stage + p * STAGE_WIDTH, count, zero_in);
                    stage_tile(stage, src, &view, first_pixel, rows, k0, k0 + count);
                }
                // Sums of one chunk have their own variables: so compilers keep them in registers.
                float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
                PIXELS sum0[p] = sum1[p] = (float16)0.0f;
                if (halves == 2) {
                    for (int k = 0; k < count; ++k) {
                        const float16 x0 = w0[k0 + k], x1 = w1[k0 + k];
                        PIXELS {
                            const float16 value = (float16)(stage[p * STAGE_WIDTH + k]);
                            sum0[p] = fma(value, x0, sum0[p]);
                            sum1[p] = fma(value, x1, sum1[p]);
                        }
                    }
                    PIXELS totals1[p] = (k0 == 0 ? start[1] : totals1[p]) + WIDEN(sum1[p], COMPUTE_T16);
                } else {
                    for (int k = 0; k < count; ++k) {
                        const float16 x0 = w0[k0 + k];
                        PIXELS sum0[p] = fma((float16)(stage[p * STAGE_WIDTH + k]), x0, sum0[p]);
                    }
                }
                PIXELS totals0[p] = (k0 == 0 ? start[0] : totals0[p]) + WIDEN(sum0[p], COMPUTE_T16);
            }
            finish_block(dst, totals0, rows, first_pixel * depth_out + channel, depth_out, min(16, depth_out - channel),
#if QUANTIZED
                         ((global const int16 *)multipliers)[2 * block], ((global const int16 *)shifts)[2 * block], zero_out,
#else
                         residual, has_residual,
#endif
                         low, high);
            if (halves == 2)
                finish_block(dst, totals1, rows, first_pixel * depth_out + channel + 16, depth_out, min(16, depth_out - channel - 16),
#if QUANTIZED
                             ((global const int16 *)multipliers)[2 * block + 1], ((global const int16 *)shifts)[2 * block + 1], zero_out,
#else
                             residual, has_residual,
#endif
                             low, high);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// depthwise_conv_2d_packed.cl: DEPTHWISE_CONV_2D with depth multiplier 1 and constant weights, for CPU-type devices.
// Maths    y[b,oy,ox,c] = act(bias[c] + sum over fy, fx of (x[b,iy,ix,c] - zero_in) * (w[fy,fx,c] - zero_w))
//          iy = oy * stride_height - padding_top + fy * dilation_height, ix alike; taps outside the image add nothing
//          quantised: act(q) = clamp(multiply_by_quantized_multiplier(q, multiplier[c], shift[c]) + zero_out, low, high)
// Tensors  src [batches, height, width, depth] of T, dst [batches, out_height, out_width, depth] of T, dense
//          weights float, packed: [ceil(depth / 16)][filter_height * filter_width][16], zero_w subtracted; the last block holds
//          channels depth - 16 .. depth - 1, or 0 .. depth - 1 and zeros if depth < 16 (packing.py: pack_depthwise_weights)
//          bias of float (float, half) or int (quantised), multipliers, shifts: int (quantised only): [ceil(depth / 16) * 16]
//          in the same channel order (packing.py: pack_depthwise_channels); all four 64-byte aligned
// Units    low, high: bounds of the activation, float (float, half) or quantised int; zero_in, zero_out quantised
//          rows_per_item: output rows of one image; blocks_per_item: 16-channel blocks
// Defines  T: float | half | uchar | char (required)
//          QUANTIZED: 0 | 1 (required); 1 with uchar and char
//          TILE_PIXELS: output pixels of a register tile, neighbours in a row
//          STAGE_VECTORS: size of the ring of input rows, 64 bytes each
// Launch   global (ceil(out_height / rows_per_item), ceil(ceil(depth / 16) / blocks_per_item), batches), local (1, 1, 1)
//          where depth is no multiple of 16 and > 16, two work-items may write the same value to the same element
//          src may hold at most 2^31 - 1 elements, dst too
// Needs    ((filter_height - 1) * dilation_height + 1) * ((TILE_PIXELS - 1) * stride_width + (filter_width - 1) * dilation_width + 1)
//          <= STAGE_VECTORS; quantised: filter_height * filter_width <= 256 (packing.py: fits_depthwise)
// Exact    quantised: bit for bit as TFLite's reference; float: one fused multiply-add per tap, row by row
#ifndef T
#error "depthwise_conv_2d_packed.cl: define T"
#endif
#ifndef QUANTIZED
#error "depthwise_conv_2d_packed.cl: define QUANTIZED"
#endif
#ifndef TILE_PIXELS
#define TILE_PIXELS 7
#endif
#ifndef STAGE_VECTORS
#define STAGE_VECTORS 1024
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"

#define PIXELS _Pragma("unroll") for (int p = 0; p < TILE_PIXELS; ++p)

#if QUANTIZED
#define LOAD_RECENTRED(p, i, zero) (float)(LOAD(p, i) - (zero))
#define LOAD_RECENTRED16(p, i, zero) WIDEN(LOAD16(p, i) - (zero), float16)
#else
#define LOAD_RECENTRED(p, i, zero) LOAD(p, i)
#define LOAD_RECENTRED16(p, i, zero) LOAD16(p, i)
#endif

static inline float16 load_partial(global const T *src, int offset, int count, int zero)
{
    float lanes[16];
    for (int i = 0; i < 16; ++i)
        lanes[i] = i < count ? LOAD_RECENTRED(src, offset + i, zero) : 0.0f;
    return vload16(0, lanes);
}

static inline void store_partial(global T *dst, int offset, COMPUTE_T16 value, int count)
{
    COMPUTE_T lanes[16];
    vstore16(value, 0, lanes);
    for (int i = 0; i < count; ++i)
        STORE(dst, offset + i, lanes[i]);
}

// Columns x .. x + columns - 1 of the image row that starts at element `line`, sixteen channels each; zeros outside 0..width - 1.
static inline void stage_row(float16 *stage, global const T *src, int line, int x, int columns, int width, int depth, int zero)
{
    for (int i = 0; i < columns; ++i) {
        const int offset = line + (x + i) * depth;
        if (!inside(x + i, width))
            stage[i] = (float16)0.0f;
        else if (depth < 16)
            stage[i] = load_partial(src, offset, depth, zero);
        else
            stage[i] = LOAD_RECENTRED16(src, offset, zero);
    }
}

TILE_KERNEL void depthwise_conv_2d_packed(
    global const T *restrict src, global const float *restrict weights, global const COMPUTE_T *restrict bias,
#if QUANTIZED
    global const int *restrict multipliers, global const int *restrict shifts,
#endif
    global T *restrict dst,
    int height, int width, int depth, int out_height, int out_width,
    int filter_height, int filter_width, int stride_height, int stride_width, int dilation_height, int dilation_width,
    int padding_top, int padding_left, int rows_per_item, int blocks_per_item,
#if QUANTIZED
    int zero_in, int zero_out,
#endif
    COMPUTE_T low, COMPUTE_T high)
{
#if !QUANTIZED
    const int zero_in = 0;
#endif
    const int b = get_global_id(2);
    const int first_row = get_global_id(0) * rows_per_item;
    const int last_row = min(first_row + rows_per_item, out_height);
    const int first_block = get_global_id(1) * blocks_per_item;
    const int last_block = min(first_block + blocks_per_item, ceil_divide(depth, 16));
    const int ring_rows = (filter_height - 1) * dilation_height + 1;
    const int columns = (TILE_PIXELS - 1) * stride_width + (filter_width - 1) * dilation_width + 1;
    float16 ring[STAGE_VECTORS]; // row y of the image is in slot (y + padding_top) % ring_rows

    for (int ox = 0; ox < out_width; ox += TILE_PIXELS) {
        const int count = min(TILE_PIXELS, out_width - ox);
        const int ix = ox * stride_width - padding_left;
        for (int block = first_block; block < last_block; ++block) {
            const int channel = max(0, min(block * 16, depth - 16));
            global const float16 *filter = (global const float16 *)weights + (size_t)block * filter_height * filter_width;
            const COMPUTE_T16 start = ((global const COMPUTE_T16 *)bias)[block];
#if QUANTIZED
            const int16 multiplier = ((global const int16 *)multipliers)[block], shift = ((global const int16 *)shifts)[block];
#endif
            int staged = 0; // rows before this one (counted from -padding_top) are in the ring
            int first_slot = first_row * stride_height % ring_rows;
            for (int oy = first_row; oy < last_row; ++oy) {
                const int top = oy * stride_height;
                staged = max(staged, top);
                for (int slot = first_slot + staged - top; staged < top + ring_rows; ++staged, ++slot) {
                    const int y = staged - padding_top;
                    stage_row(ring + (slot < ring_rows ? slot : slot - ring_rows) * columns, src,
                              nhwc_offset(b, y, 0, height, width, depth) + channel, ix, columns, inside(y, height) ? width : 0, depth,
                              zero_in);
                }
                float16 sum[TILE_PIXELS];
                PIXELS sum[p] = (float16)0.0f;
                global const float16 *w = filter;
                for (int fy = 0, slot = first_slot; fy < filter_height; ++fy) {
                    const float16 *row = ring + slot * columns;
                    for (int fx = 0; fx < filter_width; ++fx) {
                        const float16 tap = *w++;
                        PIXELS sum[p] = fma(row[p * stride_width], tap, sum[p]);
                        row += dilation_width;
                    }
                    slot += dilation_height;
                    slot -= slot < ring_rows ? 0 : ring_rows;
                }
                first_slot = (first_slot + stride_height) % ring_rows;
                COMPUTE_T16 results[TILE_PIXELS];
                PIXELS results[p] = WIDEN(sum[p], COMPUTE_T16) + start;
                for (int p = 0; p < count; ++p) {
#if QUANTIZED
                    const int16 value = activate_int16(multiply_by_quantized_multiplier16(results[p], multiplier, shift) + zero_out, low, high);
#else
                    const float16 value = activate16(results[p], low, high);
#endif
                    const int offset = nhwc_offset(b, oy, ox + p, out_height, out_width, depth) + channel;
                    if (depth < 16)
                        store_partial(dst, offset, value, depth);
                    else
                        STORE16(dst, offset, value);
                }
            }
        }
    }
}

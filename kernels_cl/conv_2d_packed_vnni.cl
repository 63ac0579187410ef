// SPDX-License-Identifier: Apache-2.0
// conv_2d_packed_vnni.cl: conv_2d_packed.cl for 8-bit tensors by the instruction vpdpbusd: PoCL on an x86 CPU with AVX512_VNNI.
// Maths    as conv_2d_packed.cl, quantised. With x' = x for unsigned inputs, x + 128 for signed ones, zero_in' alike,
//          and w' = w - 128 for unsigned weights, w for signed ones:
//          sum (x - zero_in) * (w - zero_w) = sum x' * w' + weight_offset * sum x' - zero_in' * sum (w - zero_w)
// Tensors  src, dst, multipliers, shifts as conv_2d_packed.cl
//          weights char, w' packed: [ceil(depth_out / 16)][ceil(taps * depth_in / 4)][16][4], k = (fy * filter_width + fx) * depth_in + i,
//          missing ones 0; 64-byte aligned (packing.py: pack_conv_weights_vnni)
//          bias int [ceil(depth_out / 16) * 16], bias - zero_in' * sum (w - zero_w) (packing.py: fold_input_zero_point)
// Units    weight_offset: 128 - zero_w for unsigned weights, -zero_w for signed ones; zero_in, zero_out, low, high quantised
// Defines  T: uchar | char (required)
//          TILE_PIXELS: as conv_2d_packed.cl; DEPTH_CHUNK: longest run of k staged at once, a multiple of 64
// Launch   as conv_2d_packed.cl; the device must be PoCL and the CPU must have AVX512F, AVX512BW and AVX512_VNNI
//          (else the build fails or the process dies of an illegal instruction)
// Exact    bit for bit as TFLite's reference while taps * depth_in <= 65536
#ifndef T
#error "conv_2d_packed_vnni.cl: define T"
#endif
#ifndef TILE_PIXELS
#define TILE_PIXELS 7
#endif
#ifndef DEPTH_CHUNK
#define DEPTH_CHUNK 2048
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"

// Copies overrun by up to 15 elements, zeros behind the last product by up to 79; rows stay on 64-byte boundaries.
#define STAGE_WIDTH (DEPTH_CHUNK + 128)
#define PIXELS _Pragma("unroll") for (int p = 0; p < TILE_PIXELS; ++p)

#if T_IS_SIGNED
#define TO_UNSIGNED 0x80
#else
#define TO_UNSIGNED 0
#endif

typedef struct __attribute__((packed)) {
    uchar16 value;
} UnalignedUchar16;

#define STAGE_T uchar
#define STAGE16(stage, value16) (((UnalignedUchar16 *)(stage))->value = (value16))
#define STAGED(src, i, zero) ((uchar)(src)[i] ^ TO_UNSIGNED)
#define STAGED16(src, i, zero) (((global const UnalignedUchar16 *)((src) + (i)))->value ^ (uchar16)(TO_UNSIGNED))
#define STAGED_PADDING16(zero) (uchar16)((zero) ^ TO_UNSIGNED)
#include "common/window.h"

// Each lane: sum + four unsigned bytes of x times four signed bytes of w.
static inline int16 dot4(int16 sum, int16 x, int16 w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}

// Sum of count bytes, count a multiple of 64.
static inline int sum_bytes(const uchar *row, int count)
{
    int16 lanes = 0;
    for (int k = 0; k < count; k += 64)
        lanes = dot4(lanes, *(const int16 *)(row + k), (int16)0x01010101);
    const int8 eight = lanes.lo + lanes.hi;
    const int4 four = eight.lo + eight.hi;
    return four.x + four.y + four.z + four.w;
}

static inline void finish_block(global T *dst, const int16 *sums, const int *corrections, int rows, int offset, int depth_out, int count,
                                int16 bias, int16 multiplier, int16 shift, int zero_out, int low, int high)
{
    for (int p = 0; p < rows; ++p, offset += depth_out) {
        const int16 total = sums[p] + bias + corrections[p];
        const int16 value = activate_int16(multiply_by_quantized_multiplier16(total, multiplier, shift) + zero_out, low, high);
        if (count == 16) {
            STORE16(dst, offset, value);
        } else {
            int lanes[16];
            vstore16(value, 0, lanes);
            for (int i = 0; i < count; ++i)
                STORE(dst, offset + i, lanes[i]);
        }
    }
}

TILE_KERNEL void conv_2d_packed_vnni(
    global const T *restrict src, global const char *restrict weights, global const int *restrict bias,
    global const int *restrict multipliers, global const int *restrict shifts, global T *restrict dst,
    int batches, int height, int width, int depth_in, int out_height, int out_width, int depth_out,
    int filter_height, int filter_width, int stride_height, int stride_width, int dilation_height, int dilation_width,
    int padding_top, int padding_left, int tiles_per_item, int blocks_per_item, int weight_offset,
    int zero_in, int zero_out, int low, int high)
{
    const InputView view = input_view(batches, height, width, depth_in, out_height, out_width, filter_height, filter_width,
                                      stride_height, stride_width, dilation_height, dilation_width, padding_top, padding_left, zero_in);
    const int pixels = batches * out_height * out_width;
    const int depth = filter_height * filter_width * depth_in;
    const int first_tile = get_global_id(0) * tiles_per_item;
    const int last_tile = min(first_tile + tiles_per_item, ceil_divide(pixels, TILE_PIXELS));
    const int first_block = get_global_id(1) * blocks_per_item;
    const int last_block = min(first_block + blocks_per_item, ceil_divide(depth_out, 32));
    const int quads = ceil_divide(depth, 4);
    int16 stage_vectors[TILE_PIXELS * STAGE_WIDTH / 64]; // for its alignment
    uchar *const stage = (uchar *)stage_vectors;
    int corrections[TILE_PIXELS];

    for (int tile = first_tile; tile < last_tile; ++tile) {
        const int first_pixel = tile * TILE_PIXELS;
        const int rows = min(TILE_PIXELS, pixels - first_pixel);
        for (int block = first_block; block < last_block; ++block) {
            const int channel = block * 32;
            const int halves = depth_out - channel > 16 ? 2 : 1;
            global const int16 *w0 = (global const int16 *)weights + (size_t)(2 * block) * quads;
            global const int16 *w1 = halves == 2 ? w0 + quads : w0;
            int16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
            PIXELS sum0[p] = sum1[p] = (int16)0;
            for (int k0 = 0; k0 < depth; k0 += DEPTH_CHUNK) {
                const int count = min(DEPTH_CHUNK, depth - k0);
                const int chunk_quads = ceil_divide(count, 4);
                if (block == first_block || depth > DEPTH_CHUNK) {
                    for (int p = rows; p < TILE_PIXELS; ++p)
                        stage_padding(stage + p * STAGE_WIDTH, count, zero_in);
                    stage_tile(stage, src, &view, first_pixel, rows, k0, k0 + count);
                    for (int p = 0; p < TILE_PIXELS; ++p) {
                        for (int k = count; k < count + 64; k += 16)
                            STAGE16(stage + p * STAGE_WIDTH + k, (uchar16)0);
                        if (k0 == 0)
                            corrections[p] = 0;
                        if (weight_offset != 0)
                            corrections[p] += weight_offset * sum_bytes(stage + p * STAGE_WIDTH, ceil_divide(count, 64) * 64);
                    }
                }
                for (int q = 0; q < chunk_quads; ++q) {
                    const int16 x0 = w0[k0 / 4 + q], x1 = w1[k0 / 4 + q];
                    PIXELS {
                        const int16 value = (int16)(((const int *)stage)[p * (STAGE_WIDTH / 4) + q]);
                        sum0[p] = dot4(sum0[p], value, x0);
                        sum1[p] = dot4(sum1[p], value, x1);
                    }
                }
            }
            for (int half_block = 0; half_block < halves; ++half_block) {
                int16 sums[TILE_PIXELS];
                PIXELS sums[p] = half_block == 0 ? sum0[p] : sum1[p];
                const int group = 2 * block + half_block;
                finish_block(dst, sums, corrections, rows, first_pixel * depth_out + group * 16, depth_out, min(16, depth_out - group * 16),
                             ((global const int16 *)bias)[group], ((global const int16 *)multipliers)[group],
                             ((global const int16 *)shifts)[group], zero_out, low, high);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// convolve_vnni.h: convolve.h for bytes by the instruction vpdpbusd.
// Maths    as convolve.h, quantised. With x' = x for unsigned inputs, x + 128 for signed ones, zero_in' alike,
//          and w' = w - 128 for unsigned weights, w for signed ones:
//          sum (x - zero_in) * (w - zero_w) = sum x' * w' + weight_offset * sum x' - zero_in' * sum (w - zero_w)
// Tensors  as convolve.h, but
//          weights char, w' packed: [ceil(depth_out / 16)][ceil(taps * depth_in / 4)][16][4], missing ones 0
//          (packing.py: pack_conv_weights_vnni)
//          bias: less zero_in' * sum (w - zero_w) (packing.py: fold_input_zero_point)
// Units    weight_offset: 128 - zero_w for unsigned weights, -zero_w for signed ones
// Exact    yes, while taps * depth_in <= 65536

#include "common/dot4.h"

static void convolve(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                     global const uchar *constants)
{
    global const int16 *weights = CONSTANT_AT(int16, s->weights), *bias = CONSTANT_AT(int16, s->bias);
    global const int16 *multipliers = CONSTANT_AT(int16, s->multipliers), *shifts = CONSTANT_AT(int16, s->shifts);
    global const int16 *roundings = CONSTANT_AT(int16, s->roundings);
    const InputView view = input_view(s);
    const int zero_in = s->zero_in, depth_out = s->depth_out, weight_offset = s->weight_offset;
    const int pixels = s->batches * s->out_height * s->out_width;
    const int depth = s->filter_height * s->filter_width * s->depth_in;
    const int quads = ceil_divide(depth, 4);
    int16 stage_vectors[TILE_PIXELS * STAGE_WIDTH / 64]; // for its alignment
    uchar *const stage = (uchar *)stage_vectors;
    int16 corrections[TILE_PIXELS]; // weight_offset times the sum of a pixel's inputs, in every lane
    PIXELS corrections[p] = (int16)0;

    for (int tile = part.x0; tile < part.x1; ++tile) {
        const int first_pixel = tile * TILE_PIXELS;
        const int rows = min(TILE_PIXELS, pixels - first_pixel);
        for (int block = part.y0; block < part.y1; ++block) {
            const int channel = block * 32;
            const int halves = depth_out - channel > 16 ? 2 : 1;
            global const int16 *w0 = weights + (size_t)(2 * block) * quads;
            global const int16 *w1 = halves == 2 ? w0 + quads : w0;
            int16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
            PIXELS sum0[p] = sum1[p] = (int16)0;
            for (int k0 = 0; k0 < depth; k0 += DEPTH_CHUNK) {
                const int count = min(DEPTH_CHUNK, depth - k0);
                const int chunk_quads = ceil_divide(count, 4);
                if (block == part.y0 || depth > DEPTH_CHUNK) {
                    for (int p = rows; p < TILE_PIXELS; ++p)
                        stage_padding(stage + p * STAGE_WIDTH, count, zero_in);
                    stage_tile(stage, src, &view, first_pixel, rows, k0, k0 + count);
                    for (int p = 0; p < TILE_PIXELS && count % 4 != 0; ++p)
                        STAGE16(stage + p * STAGE_WIDTH + count, (uchar16)0);
                }
                const int *x = (const int *)stage;
                global const int16 *chunk_w0 = w0 + k0 / 4, *chunk_w1 = w1 + k0 / 4;
                if (block == part.y0 && weight_offset != 0) {
                    int16 sum[TILE_PIXELS];
                    PIXELS sum[p] = (int16)0;
                    for (int q = 0; q < chunk_quads; ++q) {
                        const int16 x0 = chunk_w0[q], x1 = chunk_w1[q];
                        PIXELS {
                            const int16 value = (int16)(x[p * (STAGE_WIDTH / 4) + q]);
                            sum0[p] = dot4(sum0[p], value, x0);
                            sum1[p] = dot4(sum1[p], value, x1);
                            sum[p] = dot4(sum[p], value, (int16)0x01010101);
                        }
                    }
                    PIXELS corrections[p] = (k0 == 0 ? (int16)0 : corrections[p]) + weight_offset * sum[p];
                } else if (halves == 2) {
                    for (int q = 0; q < chunk_quads; ++q) {
                        const int16 x0 = chunk_w0[q], x1 = chunk_w1[q];
                        PIXELS {
                            const int16 value = (int16)(x[p * (STAGE_WIDTH / 4) + q]);
                            sum0[p] = dot4(sum0[p], value, x0);
                            sum1[p] = dot4(sum1[p], value, x1);
                        }
                    }
                } else {
                    for (int q = 0; q < chunk_quads; ++q) {
                        const int16 x0 = chunk_w0[q];
                        PIXELS sum0[p] = dot4(sum0[p], (int16)(x[p * (STAGE_WIDTH / 4) + q]), x0);
                    }
                }
            }
            const int offset = first_pixel * depth_out + channel;
            PIXELS sum0[p] += bias[2 * block] + corrections[p];
            finish_block(s, dst, residual, sum0, rows, offset, min(16, depth_out - channel), multipliers[2 * block], shifts[2 * block],
                         roundings[2 * block]);
            if (halves == 2) {
                PIXELS sum1[p] += bias[2 * block + 1] + corrections[p];
                finish_block(s, dst, residual, sum1, rows, offset + 16, min(16, depth_out - channel - 16), multipliers[2 * block + 1],
                             shifts[2 * block + 1], roundings[2 * block + 1]);
            }
        }
    }
}

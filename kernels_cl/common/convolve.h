// SPDX-License-Identifier: Apache-2.0
// convolve.h: a convolution, or a FULLY_CONNECTED, with products in float.
// Maths    y[b,oy,ox,o] = act(bias[o] + sum over fy, fx, i of (x[b,iy,ix,i] - zero_in) * (w[o,fy,fx,i] - zero_w)  [+ residual])
//          iy = oy * stride_height - padding_top + fy * dilation_height, ix alike; taps outside the image add nothing
//          quantised: act(q) = clamp(multiply_by_quantized_multiplier(q, multiplier[o], shift[o]) + zero_out, low, high), then the ADD;
//          FULLY_CONNECTED with multiply_rounding_once
// Tensors  src [batches, height, width, depth_in], dst and residual [batches, out_height, out_width, depth_out] of T, dense
//          weights float, packed: [ceil(depth_out / 16)][taps * depth_in][16], k = (fy * filter_width + fx) * depth_in + i,
//          zero_w subtracted, missing channels 0 (packing.py: pack_conv_weights)
//          bias [ceil(depth_out / 16) * 16] of float (float, half) or int (quantised); quantised: multipliers, shifts, roundings alike
//          FULLY_CONNECTED: batches 1, height 1, width = rows, filter, strides and dilations 1, padding 0
// Exact    quantised: if chunk (a multiple of 16, 16..DEPTH_CHUNK) keeps every partial sum of a chunk's products within 2^24;
//          256 always does, packing.py: exact_chunk finds a longer one from the weights
//          float: the bias first, by ascending k, but one pixel as direct.h says
#define READS_DIRECTLY T_IS_FLOAT

#if READS_DIRECTLY
#include "common/direct.h"

// How many of the vectors that are left a tile takes: as many as it can, but two and two rather than three and one.
static inline int vectors_of_tile(int left)
{
    return min(left, TILE_VECTORS == 3 && left == 4 ? 2 : TILE_VECTORS);
}
#endif

// The total after a chunk of products; a float sum begins with the total before.
#if QUANTIZED
#define ADD_CHUNK(k0, start, total, sum) (((k0) == 0 ? (start) : (total)) + WIDEN(sum, int16))
#else
#define ADD_CHUNK(k0, start, total, sum) (sum)
#endif

// copy: room for inputs that direct.h copies
static inline __attribute__((always_inline)) void convolve_tiles(const Step *s, const InputView *view, Part part, global const T *src, global T *dst,
                                   global const T *residual, global const uchar *constants, float *copy)
{
    global const float16 *weights = CONSTANT_AT(float16, s->weights);
    global const COMPUTE_T16 *bias = CONSTANT_AT(COMPUTE_T16, s->bias);
    global const COMPUTE_T16 *multipliers = CONSTANT_AT(COMPUTE_T16, s->multipliers), *shifts = CONSTANT_AT(COMPUTE_T16, s->shifts);
    global const COMPUTE_T16 *roundings = CONSTANT_AT(COMPUTE_T16, s->roundings);
    const int zero_in = s->zero_in, depth_out = s->depth_out, chunk = s->chunk;
    const int pixels = s->batches * s->out_height * s->out_width;
    const int depth = s->filter_height * s->filter_width * s->depth_in;
    const int tiles = part.x1 - part.x0, begin = part.x0 * TILE_PIXELS;
    float16 stage_vectors[TILE_PIXELS * STAGE_WIDTH / 16]; // for its alignment
    float *const stage = (float *)stage_vectors;
#if READS_DIRECTLY
    const int least = view->pointwise ? TILE_VECTORS : TWO_AT_MOST; // staged tiles, at the borders of pictures, take two at most
    const int group = max(least, GROUP_WEIGHTS / (16 * depth) / least * least);
    const int last_step = min(64, ceil_divide(part.ahead_lines * 64, tiles * depth));
    const int has_room = HAS_ROOM(TILE_PIXELS * depth);
#else
    const int group = 2 * (part.y1 - part.y0); // a tile is staged once
#endif
    const int begin_vector = 2 * part.y0, end_vector = min(2 * part.y1, ceil_divide(depth_out, 16));
    const int groups = max(1, (end_vector - begin_vector + group - 2) / group); // no vector is a group of its own
#if T_IS_HALF
    const int at_once = view->pointwise && has_room && groups > 1; // tiles are copied all at once, as every group needs them
    if (at_once)
        stage_run(copy, src, begin * depth, min(tiles * TILE_PIXELS, pixels - begin) * depth, view->elements, 0);
#endif
    for (int i = 0; i < groups * tiles; ++i) {
        const int y0 = begin_vector + i / tiles * group, y1 = i / tiles == groups - 1 ? end_vector : y0 + group;
        const int tile = part.x0 + i % tiles;
#if READS_DIRECTLY
        // The last tile does pixels of the one before again, if that is of the same task.
        const int again = view->pointwise && tile > part.x0 && residual != dst;
        const int first_pixel = again ? min(tile * TILE_PIXELS, pixels - TILE_PIXELS) : tile * TILE_PIXELS;
#else
        const int first_pixel = tile * TILE_PIXELS;
#endif
        const int rows = min(TILE_PIXELS, pixels - first_pixel);
#if READS_DIRECTLY
#if T_IS_HALF
        const float *x = copy + (at_once ? (first_pixel - begin) * depth : 0);
        if (view->pointwise && has_room && !at_once)
            stage_run(copy, src, first_pixel * depth, rows * depth, view->elements, 0);
#else
        global const T *x = src + first_pixel * depth;
#endif
        const Direct direct = direct_view(view, src, x, first_pixel, has_room ? rows : 0, copy);
#endif
        int vectors;
        for (int vector = y0; vector < y1; vector += vectors) {
            const int channel = vector * 16;
            global const float16 *w0 = weights + (size_t)vector * depth;
            global const COMPUTE_T16 *start = bias + vector;
            const int offset = first_pixel * depth_out + channel;
#if READS_DIRECTLY
            if (direct.rows != 0) {
                vectors = vectors_of_tile(y1 - vector);
                // Every tile fetches its part of the weights that come next: the next group's, then another task's.
                global const uchar *ahead = (global const uchar *)w0;
                int ahead_step = 0;
                if (y1 < end_vector) {
                    ahead = (global const uchar *)(w0 + (size_t)group * depth);
                    ahead_step = min(64, ceil_divide(64 * vectors, tiles));
                } else if (vector + vectors >= end_vector) {
                    ahead = CONSTANT_AT(uchar, part.ahead);
                    ahead_step = last_step;
                }
                ahead += (size_t)(tile - part.x0) * depth * ahead_step;
                if (TILE_VECTORS > 2 && vectors == 3)
                    convolve_direct(s, &direct, w0, depth, start, ahead, ahead_step, dst, residual, offset, depth_out - channel, 3);
                else if (TILE_VECTORS > 1 && vectors == 2)
                    convolve_direct(s, &direct, w0, depth, start, ahead, ahead_step, dst, residual, offset, depth_out - channel, 2);
                else
                    convolve_direct(s, &direct, w0, depth, start, ahead, ahead_step, dst, residual, offset, depth_out - channel, 1);
                continue;
            }
#endif
            vectors = min(TWO_AT_MOST, y1 - vector);
            global const float16 *w1 = w0 + depth;
            COMPUTE_T16 totals0[TILE_PIXELS], totals1[TILE_PIXELS];
            for (int k0 = 0; k0 < depth; k0 += chunk) {
                const int count = min(chunk, depth - k0);
                if (vector == y0 || depth > chunk) {
                    for (int p = rows; p < TILE_PIXELS; ++p)
                        stage_padding(stage + p * STAGE_WIDTH, count, zero_in);
                    stage_tile(stage, src, view, first_pixel, rows, k0, k0 + count);
                }
                // Sums of one chunk have their own variables: so compilers keep them in registers.
                float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
#if QUANTIZED
                PIXELS sum0[p] = sum1[p] = (float16)0.0f;
#else
                PIXELS sum0[p] = k0 == 0 ? start[0] : totals0[p];
                if (vectors == 2)
                    PIXELS sum1[p] = k0 == 0 ? start[1] : totals1[p];
#endif
                if (vectors == 2) {
                    for (int k = 0; k < count; ++k) {
                        const float16 x0 = w0[k0 + k], x1 = w1[k0 + k];
                        PIXELS {
                            const float16 value = (float16)(stage[p * STAGE_WIDTH + k]);
                            sum0[p] = fma(value, x0, sum0[p]);
                            sum1[p] = fma(value, x1, sum1[p]);
                        }
                    }
                    PIXELS totals1[p] = ADD_CHUNK(k0, start[1], totals1[p], sum1[p]);
                } else {
                    for (int k = 0; k < count; ++k) {
                        const float16 x0 = w0[k0 + k];
                        PIXELS sum0[p] = fma((float16)(stage[p * STAGE_WIDTH + k]), x0, sum0[p]);
                    }
                }
                PIXELS totals0[p] = ADD_CHUNK(k0, start[0], totals0[p], sum0[p]);
            }
            finish_block(s, dst, residual, totals0, rows, offset, min(16, depth_out - channel), multipliers[vector],
                         shifts[vector], roundings[vector]);
            if (vectors == 2)
                finish_block(s, dst, residual, totals1, rows, offset + 16, min(16, depth_out - channel - 16),
                             multipliers[vector + 1], shifts[vector + 1], roundings[vector + 1]);
        }
    }
}

static void convolve(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                     global const uchar *constants)
{
    const InputView view = input_view(s);
#if READS_DIRECTLY
    global const float16 *weights = CONSTANT_AT(float16, s->weights), *bias = CONSTANT_AT(float16, s->bias);
    const int depth_out = s->depth_out;
#if T_IS_HALF
    float16 copy_vectors[COPIED_ELEMENTS / 16 + 1]; // for its alignment
    float *const copy = (float *)copy_vectors;
#else
    float *const copy = 0;
#endif
    if (view.pointwise && s->batches * s->out_height * s->out_width == 1 && HAS_ROOM(s->depth_in)) {
        convolve_pixel(s, part, src, dst, residual, weights, bias, copy);
        return;
    }
    if (TILE_VECTORS > 1 && view.pointwise && (depth_out == 16 || depth_out == 24) && HAS_ROOM(2 * TILE_PIXELS * s->depth_in)) {
        part.x0 = convolve_pairs(s, part, src, dst, residual, weights, bias, copy);
        if (part.x0 == part.x1)
            return;
    }
#else
    float *const copy = 0;
#endif
#if T_IS_HALF
    // As many tiles at a time as can be copied; the last ones fetch what another task needs.
    const int end = part.x1, ahead_lines = part.ahead_lines;
    const int tiles = view.pointwise ? max(1, COPIED_ELEMENTS / (TILE_PIXELS * s->depth_in)) : end - part.x0;
    for (; part.x0 < end; part.x0 += tiles) {
        part.x1 = min(part.x0 + tiles, end);
        part.ahead_lines = part.x1 == end ? ahead_lines : 0;
        convolve_tiles(s, &view, part, src, dst, residual, constants, copy);
    }
#else
    convolve_tiles(s, &view, part, src, dst, residual, constants, copy);
#endif
}

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

// Where pixels are no multiple of a tile's, the last tiles have one less. With more vectors that would be many more forms to compile.
#define SHORT_TILES (TILE_VECTORS == 1)

// How many of the vectors that are left a tile takes: as many as it can, but two and two rather than three and one.
static inline int vectors_of_tile(int left)
{
    return min(left, TILE_VECTORS == 3 && left == 4 ? 2 : TILE_VECTORS);
}

// copy: room for inputs that direct.h copies, as much as gpu_driver/convolution/staging.py says
static inline __attribute__((always_inline)) void convolve_tiles(const Step *s, const InputView *view, Part part, global const T *src,
                                                                 global T *dst, global const T *residual, global const float16 *weights,
                                                                 global const float16 *bias, global const uchar *constants,
                                                                 global float *copy)
{
    const int depth_out = s->depth_out;
    const int pixels = s->batches * s->out_height * s->out_width;
    const int depth = s->filter_height * s->filter_width * s->depth_in;
    const int tiles = part.x1 - part.x0, begin = part.x0 * TILE_PIXELS, too_many = max(0, part.x1 * TILE_PIXELS - pixels);
    const int whole_tiles = tiles - (SHORT_TILES && view->pointwise ? min(too_many, tiles) : 0);
    const int group = max(TILE_VECTORS, GROUP_WEIGHTS / (16 * depth) / TILE_VECTORS * TILE_VECTORS);
    const int last_step = min(64, ceil_divide(part.ahead_lines * 64, tiles * depth));
    const int begin_vector = 2 * part.y0, end_vector = min(2 * part.y1, ceil_divide(depth_out, 16));
    const int groups = max(1, (end_vector - begin_vector + group - 2) / group); // no vector is a group of its own
#if T_IS_HALF
    const int at_once = view->pointwise && groups > 1; // tiles are copied all at once, as every group needs them
    if (at_once)
        stage_run(copy, src, begin * depth, min(tiles * TILE_PIXELS, pixels - begin) * depth, view->elements, 0);
#endif
    int list[MOST_PRODUCTS];
    const int *offsets = list_products(view, list);
    for (int i = 0; i < groups * tiles; ++i) {
        const int y0 = begin_vector + i / tiles * group, y1 = i / tiles == groups - 1 ? end_vector : y0 + group;
        const int tile = part.x0 + i % tiles, shorter_before = max(0, i % tiles - whole_tiles);
        const int width = TILE_PIXELS - (i % tiles >= whole_tiles);
        // The last tile does pixels of the one before again, if that is of the same task.
        const int again = view->pointwise && tile > part.x0 && residual != dst;
        const int place = tile * TILE_PIXELS - shorter_before, first_pixel = again ? min(place, pixels - width) : place;
        const int rows = min(width, pixels - first_pixel);
#if T_IS_HALF
        global const float *x = copy + (at_once ? (first_pixel - begin) * depth : 0);
        if (view->pointwise && !at_once)
            stage_run(copy, src, first_pixel * depth, rows * depth, view->elements, 0);
#else
        global const float *x = src + first_pixel * depth;
#endif
        Direct direct = direct_view(view, offsets, src, x, first_pixel, rows, width, copy);
        if (direct.rows == 0)
            direct = staged_view(view, src, first_pixel, rows, depth, copy);
        int vectors;
        for (int vector = y0; vector < y1; vector += vectors) {
            const int channel = vector * 16, offset = first_pixel * depth_out + channel;
            global const float16 *w = weights + (size_t)vector * depth, *start = bias + vector;
            vectors = vectors_of_tile(y1 - vector);
            // Every tile fetches its part of the weights that come next: the next group's, then another task's.
            global const uchar *ahead = (global const uchar *)w;
            int ahead_step = 0;
            if (y1 < end_vector) {
                ahead = (global const uchar *)(w + (size_t)group * depth);
                ahead_step = min(64, ceil_divide(64 * vectors, tiles));
            } else if (vector + vectors >= end_vector) {
                ahead = CONSTANT_AT(uchar, part.ahead);
                ahead_step = last_step;
            }
            ahead += (size_t)(tile - part.x0) * depth * ahead_step;
            if (TILE_VECTORS > 2 && vectors == 3)
                convolve_direct(s, &direct, w, depth, start, ahead, ahead_step, dst, residual, rows, offset, depth_out - channel,
                                TILE_PIXELS, 3);
            else if (TILE_VECTORS > 1 && vectors == 2)
                convolve_direct(s, &direct, w, depth, start, ahead, ahead_step, dst, residual, rows, offset, depth_out - channel,
                                TILE_PIXELS, 2);
            else if (SHORT_TILES && width < TILE_PIXELS)
                convolve_direct(s, &direct, w, depth, start, ahead, ahead_step, dst, residual, rows, offset, depth_out - channel,
                                TILE_PIXELS - 1, 1);
            else
                convolve_direct(s, &direct, w, depth, start, ahead, ahead_step, dst, residual, rows, offset, depth_out - channel,
                                TILE_PIXELS, 1);
        }
    }
}

static void convolve(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                     global const uchar *constants, global float *copy)
{
    const InputView view = input_view(s);
    global const float16 *weights = CONSTANT_AT(float16, s->weights), *bias = CONSTANT_AT(float16, s->bias);
    const int depth_out = s->depth_out;
    if (view.pointwise && s->batches * s->out_height * s->out_width == 1) {
        convolve_pixel(s, part, src, dst, residual, weights, bias, copy);
        return;
    }
    if (TILE_VECTORS > 1 && view.pointwise && (depth_out == 16 || depth_out == 24)) {
        part.x0 = convolve_pairs(s, part, src, dst, residual, weights, bias, copy);
        if (part.x0 == part.x1)
            return;
    }
#if T_IS_HALF
    // As many tiles at a time as can be copied; the last ones fetch what another task needs.
    const int end = part.x1, ahead_lines = part.ahead_lines;
    const int tiles = view.pointwise ? max(1, COPIED_ELEMENTS / (TILE_PIXELS * s->depth_in)) : end - part.x0;
    for (; part.x0 < end; part.x0 += tiles) {
        part.x1 = min(part.x0 + tiles, end);
        part.ahead_lines = part.x1 == end ? ahead_lines : 0;
        convolve_tiles(s, &view, part, src, dst, residual, weights, bias, constants, copy);
    }
#else
    convolve_tiles(s, &view, part, src, dst, residual, weights, bias, constants, copy);
#endif
}
#else
static void convolve(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                     global const uchar *constants)
{
    const InputView view = input_view(s);
    global const float16 *weights = CONSTANT_AT(float16, s->weights);
    global const int16 *bias = CONSTANT_AT(int16, s->bias), *multipliers = CONSTANT_AT(int16, s->multipliers);
    global const int16 *shifts = CONSTANT_AT(int16, s->shifts), *roundings = CONSTANT_AT(int16, s->roundings);
    const int zero_in = s->zero_in, depth_out = s->depth_out, chunk = s->chunk;
    const int pixels = s->batches * s->out_height * s->out_width;
    const int depth = s->filter_height * s->filter_width * s->depth_in;
    float16 stage_vectors[TILE_PIXELS * STAGE_WIDTH / 16]; // for its alignment
    float *const stage = (float *)stage_vectors;
    const int begin = 2 * part.y0, end = min(2 * part.y1, ceil_divide(depth_out, 16));
    for (int tile = part.x0; tile < part.x1; ++tile) {
        const int first_pixel = tile * TILE_PIXELS, rows = min(TILE_PIXELS, pixels - first_pixel);
        int vectors;
        for (int vector = begin; vector < end; vector += vectors) {
            const int channel = vector * 16, offset = first_pixel * depth_out + channel;
            global const float16 *w0 = weights + (size_t)vector * depth, *w1 = w0 + depth;
            vectors = min(TWO_AT_MOST, end - vector);
            int16 totals0[TILE_PIXELS], totals1[TILE_PIXELS];
            PIXELS totals0[p] = bias[vector];
            if (vectors == 2)
                PIXELS totals1[p] = bias[vector + 1];
            for (int k0 = 0; k0 < depth; k0 += chunk) {
                const int count = min(chunk, depth - k0);
                if (vector == begin || depth > chunk) {
                    for (int p = rows; p < TILE_PIXELS; ++p)
                        stage_padding(stage + p * STAGE_WIDTH, count, zero_in);
                    stage_tile(stage, STAGE_WIDTH, src, &view, first_pixel, rows, k0, k0 + count);
                }
                // Sums of one chunk have their own variables: so compilers keep them in registers.
                float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
                PIXELS sum0[p] = sum1[p] = (float16)0.0f;
                if (vectors == 2) {
                    for (int k = 0; k < count; ++k) {
                        const float16 x0 = w0[k0 + k], x1 = w1[k0 + k];
                        PIXELS {
                            const float16 value = (float16)(stage[p * STAGE_WIDTH + k]);
                            sum0[p] = fma(value, x0, sum0[p]);
                            sum1[p] = fma(value, x1, sum1[p]);
                        }
                    }
                    PIXELS totals1[p] += WIDEN(sum1[p], int16);
                } else {
                    for (int k = 0; k < count; ++k) {
                        const float16 x0 = w0[k0 + k];
                        PIXELS sum0[p] = fma((float16)(stage[p * STAGE_WIDTH + k]), x0, sum0[p]);
                    }
                }
                PIXELS totals0[p] += WIDEN(sum0[p], int16);
            }
            finish_block(s, dst, residual, totals0, rows, offset, min(16, depth_out - channel), multipliers[vector],
                         shifts[vector], roundings[vector]);
            if (vectors == 2)
                finish_block(s, dst, residual, totals1, rows, offset + 16, min(16, depth_out - channel - 16),
                             multipliers[vector + 1], shifts[vector + 1], roundings[vector + 1]);
        }
    }
}
#endif

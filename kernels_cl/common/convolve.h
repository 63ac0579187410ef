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
//          float: ascending k; staged tiles (at borders, or of half) in chunks added in order
#define READS_DIRECTLY (T_IS_FLOAT && !T_IS_HALF)

#if READS_DIRECTLY
// Where a tile's inputs lie in memory if they need no staging: `runs` of `length` elements, the same for every pixel but `step`
// elements further on; runs that are taps of a row are `tap_step` apart, rows of taps `row_step`.
typedef struct {
    global const T *first;
    long step, tap_step, row_step;
    int rows, taps, length; // rows 0: the tile must be staged
} Direct;

static inline Direct direct_view(const InputView *v, global const T *src, int first_pixel)
{
    Direct view = {src + (long)first_pixel * v->depth, v->depth, 0, 0, 1, 1, v->depth};
    if (v->pointwise)
        return view;
    const int row = first_pixel / v->out_width, ox = first_pixel - row * v->out_width, b = row / v->out_height;
    const int y = (row - b * v->out_height) * v->stride_height - v->padding_top, x = ox * v->stride_width - v->padding_left;
    const int bottom = y + (v->filter_height - 1) * v->dilation_height;
    const int right = x + (TILE_PIXELS - 1) * v->stride_width + (v->filter_width - 1) * v->dilation_width;
    const int fits = ox + TILE_PIXELS <= v->out_width && y >= 0 && bottom < v->height && x >= 0 && right < v->width;
    const int joined = v->dilation_width == 1;
    view.first = src + (long)nhwc_offset(b, y, x, v->height, v->width, v->depth);
    view.step = v->stride_width * v->depth;
    view.tap_step = v->dilation_width * v->depth;
    view.row_step = (long)v->dilation_height * v->width * v->depth;
    view.rows = fits ? v->filter_height : 0;
    view.taps = joined ? 1 : v->filter_width;
    view.length = joined ? v->filter_width * v->depth : v->depth;
    return view;
}
#endif

static void convolve(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                     global const uchar *constants)
{
    global const float16 *weights = CONSTANT_AT(float16, s->weights);
    global const COMPUTE_T16 *bias = CONSTANT_AT(COMPUTE_T16, s->bias);
    global const COMPUTE_T16 *multipliers = CONSTANT_AT(COMPUTE_T16, s->multipliers), *shifts = CONSTANT_AT(COMPUTE_T16, s->shifts);
    global const COMPUTE_T16 *roundings = CONSTANT_AT(COMPUTE_T16, s->roundings);
    const InputView view = input_view(s);
    const int zero_in = s->zero_in, depth_out = s->depth_out, chunk = s->chunk;
    const int pixels = s->batches * s->out_height * s->out_width;
    const int depth = s->filter_height * s->filter_width * s->depth_in;
    float16 stage_vectors[TILE_PIXELS * STAGE_WIDTH / 16]; // for its alignment
    float *const stage = (float *)stage_vectors;

    for (int tile = part.x0; tile < part.x1; ++tile) {
        const int first_pixel = tile * TILE_PIXELS;
        const int rows = min(TILE_PIXELS, pixels - first_pixel);
#if READS_DIRECTLY
        Direct direct = direct_view(&view, src, first_pixel);
        if (rows < TILE_PIXELS)
            direct.rows = 0;
#endif
        for (int block = part.y0; block < part.y1; ++block) {
            const int channel = block * 32;
            const int halves = depth_out - channel > 16 ? 2 : 1;
            global const float16 *w0 = weights + (size_t)(2 * block) * depth;
            global const float16 *w1 = w0 + depth;
            global const COMPUTE_T16 *start = bias + 2 * block;
            COMPUTE_T16 totals0[TILE_PIXELS], totals1[TILE_PIXELS];
#if READS_DIRECTLY
            if (direct.rows != 0) {
                float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
                PIXELS sum0[p] = sum1[p] = (float16)0.0f;
                for (int fy = 0; fy < direct.rows; ++fy) {
                    global const T *x = direct.first + fy * direct.row_step;
                    for (int fx = 0; fx < direct.taps; ++fx, x += direct.tap_step, w0 += direct.length, w1 += direct.length) {
                        if (halves == 2) {
                            for (int k = 0; k < direct.length; ++k) {
                                const float16 x0 = w0[k], x1 = w1[k];
                                PIXELS {
                                    const float16 value = (float16)(x[p * direct.step + k]);
                                    sum0[p] = fma(value, x0, sum0[p]);
                                    sum1[p] = fma(value, x1, sum1[p]);
                                }
                            }
                        } else {
                            for (int k = 0; k < direct.length; ++k) {
                                const float16 x0 = w0[k];
                                PIXELS sum0[p] = fma((float16)(x[p * direct.step + k]), x0, sum0[p]);
                            }
                        }
                    }
                }
                PIXELS totals0[p] = start[0] + sum0[p];
                if (halves == 2)
                    PIXELS totals1[p] = start[1] + sum1[p];
            } else
#endif
            for (int k0 = 0; k0 < depth; k0 += chunk) {
                const int count = min(chunk, depth - k0);
                if (block == part.y0 || depth > chunk) {
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
            const int offset = first_pixel * depth_out + channel;
            finish_block(s, dst, residual, totals0, rows, offset, min(16, depth_out - channel), multipliers[2 * block],
                         shifts[2 * block], roundings[2 * block]);
            if (halves == 2)
                finish_block(s, dst, residual, totals1, rows, offset + 16, min(16, depth_out - channel - 16),
                             multipliers[2 * block + 1], shifts[2 * block + 1], roundings[2 * block + 1]);
        }
    }
}

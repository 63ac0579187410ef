// SPDX-License-Identifier: Apache-2.0
// direct.h: convolve.h for float tensors, where the inputs of a tile can be read where they lie.
// Maths, tensors  as convolve.h
// Defines  T float, common/tile.h, common/window.h, READS_DIRECTLY (all required, before inclusion)
// Exact    fused multiply-adds, the bias first, by ascending k; one pixel: by k modulo 8
// Weights of GROUP_WEIGHTS elements stay in a core's first cache. Where those of all blocks are more, all tiles of a task take one group
// of blocks, then the next, and weights of the next are fetched meanwhile: from the third cache that takes longer than to use them.
#define GROUP_WEIGHTS 6144

#ifdef __has_builtin
#if __has_builtin(__builtin_prefetch) && (!defined(__SPIR__) || defined(__INTEL_LLVM_COMPILER))
#define PREFETCH(p) __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#endif
#endif
#ifndef PREFETCH
#define PREFETCH(p) (void)(p)
#endif

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

// Activates and stores `count` channels of a tile, from element `offset` of dst on. Arrays that are passed on by address do not stay in
// registers, so the rare case has a copy.
static inline __attribute__((always_inline)) void finish_direct(const Step *s, global T *dst, global const T *residual, float16 *sum,
                                                                int offset, int count)
{
    const float low = s->low, high = s->high;
    const int depth_out = s->depth_out;
    if (count >= 16) {
        if (s->has_residual)
            PIXELS sum[p] += LOAD16(residual, offset + p * depth_out);
        PIXELS STORE16(dst, offset + p * depth_out, activate16(sum[p], low, high));
    } else {
        float16 totals[TILE_PIXELS];
        PIXELS totals[p] = sum[p];
        finish_block(s, dst, residual, totals, TILE_PIXELS, offset, count, 0, 0, 0);
    }
}

// The sums of a tile of 32 channels. w0, w1: weights of its blocks; ahead: weights to fetch, so many bytes with each input channel.
static inline __attribute__((always_inline)) void sum_direct32(const Direct *view, global const float16 *w0, global const float16 *w1,
                                                               global const float16 *bias, global const uchar *ahead,
                                                               int ahead_step, float16 *sum0, float16 *sum1)
{
    const int length = view->length;
    const long step = view->step;
    PIXELS sum0[p] = bias[0];
    PIXELS sum1[p] = bias[1];
    for (int fy = 0; fy < view->rows; ++fy) {
        global const T *x = view->first + fy * view->row_step;
        for (int fx = 0; fx < view->taps; ++fx, x += view->tap_step, w0 += length, w1 += length) {
            for (int k = 0; k < length; ++k, ahead += ahead_step) {
                const float16 x0 = w0[k], x1 = w1[k];
                PREFETCH(ahead);
                PIXELS {
                    const float16 value = (float16)(x[p * step + k]);
                    sum0[p] = fma(value, x0, sum0[p]);
                    sum1[p] = fma(value, x1, sum1[p]);
                }
            }
        }
    }
}

// The sums of a tile of 16 channels.
static inline __attribute__((always_inline)) void sum_direct16(const Direct *view, global const float16 *w, global const float16 *bias,
                                                               float16 *sum)
{
    const int length = view->length;
    const long step = view->step;
    PIXELS sum[p] = bias[0];
    for (int fy = 0; fy < view->rows; ++fy) {
        global const T *x = view->first + fy * view->row_step;
        for (int fx = 0; fx < view->taps; ++fx, x += view->tap_step, w += length) {
            for (int k = 0; k < length; ++k) {
                const float16 x0 = w[k];
                PIXELS sum[p] = fma((float16)(x[p * step + k]), x0, sum[p]);
            }
        }
    }
}

// A tile of `count` > 16 channels, from element `offset` of dst on.
static inline void convolve_direct32(const Step *s, const Direct *view, global const float16 *w0, int depth, global const float16 *bias,
                                     global const uchar *ahead, int ahead_step, global T *dst, global const T *residual, int offset,
                                     int count)
{
    float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
    sum_direct32(view, w0, w0 + depth, bias, ahead, ahead_step, sum0, sum1);
    finish_direct(s, dst, residual, sum0, offset, 16);
    finish_direct(s, dst, residual, sum1, offset + 16, count - 16);
}

// A tile of `count` <= 16 channels.
static inline void convolve_direct16(const Step *s, const Direct *view, global const float16 *w, global const float16 *bias,
                                     global T *dst, global const T *residual, int offset, int count)
{
    float16 sum[TILE_PIXELS];
    sum_direct16(view, w, bias, sum);
    finish_direct(s, dst, residual, sum, offset, count);
}

// Two tiles of 16 channels with windows of one, from pixel 0 of x and dst on.
static inline void convolve_pair16(const Step *s, global const T *x, global T *dst, global const T *residual, global const float16 *w,
                                   global const float16 *bias)
{
    const int depth = s->depth_in;
    const float low = s->low, high = s->high;
    global const T *x1 = x + TILE_PIXELS * depth;
    float16 first[TILE_PIXELS], second[TILE_PIXELS];
    PIXELS first[p] = bias[0];
    PIXELS second[p] = bias[0];
    for (int k = 0; k < depth; ++k) {
        const float16 w0 = w[k];
        PIXELS first[p] = fma((float16)(x[p * depth + k]), w0, first[p]);
        PIXELS second[p] = fma((float16)(x1[p * depth + k]), w0, second[p]);
    }
    if (s->has_residual) {
        PIXELS first[p] += LOAD16(residual, p * 16);
        PIXELS second[p] += LOAD16(residual, (TILE_PIXELS + p) * 16);
    }
    PIXELS STORE16(dst, p * 16, activate16(first[p], low, high));
    PIXELS STORE16(dst, (TILE_PIXELS + p) * 16, activate16(second[p], low, high));
}

// The same with 24 channels: one sum holds the last 8 of two neighbours.
static inline void convolve_pair24(const Step *s, global const T *x, global T *dst, global const T *residual, global const float16 *w,
                                   global const float16 *bias)
{
    const int depth = s->depth_in;
    const float low = s->low, high = s->high;
    const int16 lower = (int16)((int8)(-1), (int8)(0)); // (a.lo, b.lo) would become two more loads
    global const float16 *ends = w + depth;
    float16 even[TILE_PIXELS], odd[TILE_PIXELS], both[TILE_PIXELS];
    PIXELS even[p] = bias[0];
    PIXELS odd[p] = bias[0];
    PIXELS both[p] = (float16)(bias[1].lo, bias[1].lo);
    for (int k = 0; k < depth; ++k) {
        const float16 w0 = w[k], w1 = (float16)(ends[k].lo, ends[k].lo);
        PIXELS {
            const float16 a = (float16)(x[2 * p * depth + k]), b = (float16)(x[(2 * p + 1) * depth + k]);
            even[p] = fma(a, w0, even[p]);
            odd[p] = fma(b, w0, odd[p]);
            both[p] = fma(as_float16((as_int16(a) & lower) | (as_int16(b) & ~lower)), w1, both[p]);
        }
    }
    if (s->has_residual) {
        PIXELS even[p] += LOAD16(residual, p * 48);
        PIXELS odd[p] += LOAD16(residual, p * 48 + 24);
        PIXELS both[p] += (float16)(LOAD8(residual, p * 48 + 16), LOAD8(residual, p * 48 + 40));
    }
    PIXELS {
        const float16 last = activate16(both[p], low, high);
        STORE16(dst, p * 48, activate16(even[p], low, high));
        STORE8(dst, p * 48 + 16, last.lo);
        STORE16(dst, p * 48 + 24, activate16(odd[p], low, high));
        STORE8(dst, p * 48 + 40, last.hi);
    }
}

// Whole pairs of tiles of 16 or 24 channels with windows of one; returns the first tile that is left of the part.
static __attribute__((noinline)) int convolve_pairs(const Step *s, Part part, global const T *src, global T *dst,
                                                     global const T *residual, global const float16 *weights, global const float16 *bias)
{
    const int last = min(part.x1, s->batches * s->out_height * s->out_width / TILE_PIXELS);
    int tile = part.x0;
    for (; tile + 2 <= last; tile += 2) {
        const long pixel = (long)tile * TILE_PIXELS, offset = pixel * s->depth_out;
        if (s->depth_out == 16)
            convolve_pair16(s, src + pixel * s->depth_in, dst + offset, residual + offset, weights, bias);
        else
            convolve_pair24(s, src + pixel * s->depth_in, dst + offset, residual + offset, weights, bias);
    }
    return tile;
}

// One pixel with a window of one: weights are used once, so several sums keep many loads on their way.
static __attribute__((noinline)) void convolve_pixel(const Step *s, Part part, global const T *src, global T *dst,
                                                      global const T *residual, global const float16 *weights, global const float16 *bias)
{
    const int depth = s->depth_in, depth_out = s->depth_out, last = min(2 * part.y1, ceil_divide(depth_out, 16));
    for (int block = 2 * part.y0; block < last; ++block) {
        global const float16 *w = weights + (size_t)block * depth;
        const int offset = block * 16, count = min(16, depth_out - offset);
        float16 sum[8];
        _Pragma("unroll") for (int i = 0; i < 8; ++i) sum[i] = (float16)0.0f;
        int k = 0;
        for (; k + 8 <= depth; k += 8)
            _Pragma("unroll") for (int i = 0; i < 8; ++i) sum[i] = fma((float16)(src[k + i]), w[k + i], sum[i]);
        for (; k < depth; ++k)
            sum[0] = fma((float16)(src[k]), w[k], sum[0]);
        float16 value = bias[block] + (((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])));
        if (s->has_residual)
            value += load_lanes(residual, offset, count);
        store_lanes(dst, offset, activate16(value, s->low, s->high), count);
    }
}

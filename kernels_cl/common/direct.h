// SPDX-License-Identifier: Apache-2.0
// direct.h: convolve.h for float and half tensors: the inputs of a tile are read where they lie, or from a copy of them as floats.
// Maths, tensors  as convolve.h
// Defines  T float | half, common/tile.h, common/window.h, common/prefetch.h, READS_DIRECTLY (all required, before inclusion)
// Exact    fused multiply-adds, the bias first, by ascending k; one pixel: by k modulo 8
// Weights of GROUP_WEIGHTS elements stay in a core's first cache. Where those of all channels are more, all tiles of a task take one group
// of channels (what a tile has at least), then the next, and weights of the next are fetched meanwhile: from the third cache that takes
// longer than to use them.
#define GROUP_WEIGHTS 6144

// READABLE(src, offset, count, elements, copy): elements offset .. offset + count - 1 of src as floats, of `elements` that there are
// COPIED_ELEMENTS: room for copies of several tiles (half)
#if T_IS_HALF
#define COPIED_ELEMENTS 49152 // as gpu_driver/convolution/staging.py has it
#define READABLE(src, offset, count, elements, copy) (stage_run(copy, src, offset, count, elements, 0), (copy))
#else
#define READABLE(src, offset, count, elements, copy) ((src) + (offset))
#endif

// Copies overrun by up to 15 elements; the width also keeps rows off the same cache sets. As gpu_driver/convolution/staging.py has it.
#define STAGE_PITCH(depth) (((depth) + 31) / 16 * 16 + 16)

// Where a tile's inputs lie in memory if they need no staging: `runs` of `length` elements, the same for every pixel but `step`
// elements further on; runs that are taps of a row are `tap_step` apart, rows of taps `row_step`.
typedef struct {
    global const float *first;
    const int *offsets; // of the products of a window from its first, or 0
    long step, tap_step, row_step;
    int rows, taps, length; // rows 0: the tile must be staged
#if T_IS_HALF
    int pitch; // row_step of the copy
#endif
} Direct;
#if T_IS_HALF
#define ROW_STEP(view) ((view)->pitch)
#else
#define ROW_STEP(view) ((view)->row_step)
#endif

// Of windows of more than one pixel, before their tile is known.
static inline Direct direct_windows(const InputView *v, const int *offsets)
{
    const int joined = v->dilation_width == 1;
    Direct view = {0, offsets, v->stride_width * v->depth, v->dilation_width * v->depth, (long)v->dilation_height * v->width * v->depth,
                   v->filter_height, joined ? 1 : v->filter_width, joined ? v->filter_width * v->depth : v->depth};
#if T_IS_HALF
    view.pitch = ((TILE_PIXELS - 1) * view.step + (view.taps - 1) * view.tap_step + view.length + 15) & ~15;
#endif
    return view;
}

// LISTS_PRODUCTS 1: where the products of small windows lie is listed once for many tiles, as to begin a run takes as long as several
// products. Intel's compiler does worse with it.
#ifdef __INTEL_LLVM_COMPILER
#define LISTS_PRODUCTS 0
#else
#define LISTS_PRODUCTS 1
#endif
#define MOST_PRODUCTS 256
// Where registers are few, offsets of pixels come from the stack for every product.
#define LONGEST_LISTED (TILE_VECTORS > 1 ? MOST_PRODUCTS : 8)

// Writes the offsets of the products of a window and returns them, or 0 where runs do better.
static inline const int *list_products(const InputView *v, int *offsets)
{
    if (!LISTS_PRODUCTS || v->pointwise || v->filter_height * v->filter_width * v->depth > MOST_PRODUCTS)
        return 0;
    const Direct view = direct_windows(v, 0);
    if (view.length > LONGEST_LISTED)
        return 0;
    int k = 0;
    for (int fy = 0; fy < v->filter_height; ++fy)
        for (int fx = 0; fx < v->filter_width; ++fx)
            for (int i = 0; i < v->depth; ++i)
                offsets[k++] = fy * (int)ROW_STEP(&view) + fx * (int)view.tap_step + i;
    return offsets;
}

// Lets a view begin at src, where the tensor has so many `elements` left.
static inline void look_at(Direct *view, global const T *src, int elements, global float *copy)
{
#if T_IS_HALF
    const int width = (TILE_PIXELS - 1) * view->step + (view->taps - 1) * view->tap_step + view->length;
    if (view->rows * view->pitch > COPIED_ELEMENTS)
        view->rows = 0;
    for (int row = 0; row < view->rows; ++row)
        stage_run(copy + row * view->pitch, src, row * (int)view->row_step, width, elements, 0);
    view->first = copy;
#else
    view->first = src;
#endif
}

// pixels: the first of `rows` of a tile of `width`, if windows are of one; copy: room for others, or for all of a half's
static inline Direct direct_view(const InputView *v, const int *offsets, global const T *src, global const float *pixels, int first_pixel,
                                 int rows, int width, global float *copy)
{
    if (v->pointwise) {
        const Direct alone = {pixels, 0, v->depth, 0, 0, T_IS_HALF || rows == width, 1, v->depth};
        return alone;
    }
    const int row = first_pixel / v->out_width, ox = first_pixel - row * v->out_width, b = row / v->out_height;
    const int y = (row - b * v->out_height) * v->stride_height - v->padding_top, x = ox * v->stride_width - v->padding_left;
    const int bottom = y + (v->filter_height - 1) * v->dilation_height;
    const int right = x + (TILE_PIXELS - 1) * v->stride_width + (v->filter_width - 1) * v->dilation_width;
    const int fits = ox + TILE_PIXELS <= v->out_width && y >= 0 && bottom < v->height && x >= 0 && right < v->width;
    const int first = nhwc_offset(b, y, x, v->height, v->width, v->depth);
    Direct view = direct_windows(v, offsets);
    if (!fits || rows != TILE_PIXELS)
        view.rows = 0;
    look_at(&view, src + first, v->elements - first, copy);
    return view;
}

// A tile whose inputs do not lie like this: they are copied side by side, `depth` for each pixel.
static inline Direct staged_view(const InputView *v, global const T *src, int first_pixel, int rows, int depth, global float *copy)
{
    const int pitch = STAGE_PITCH(depth);
    stage_tile(copy, pitch, src, v, first_pixel, rows, 0, depth);
    for (int p = rows; p < TILE_PIXELS; ++p)
        stage_padding(copy + p * pitch, depth, 0);
    const Direct view = {copy, 0, pitch, 0, 0, 1, 1, depth};
    return view;
}

// Tiles that are not whole are rare, so that what ends them is compiled once, not in every place.
static __attribute__((noinline)) void finish_some(const Step *s, global T *dst, global const T *residual, const float16 *totals, int rows,
                                                  int offset, int count)
{
    finish_block(s, dst, residual, totals, rows, offset, count, 0, 0, 0);
}

// Activates and stores `count` channels of `rows` pixels of a tile, from element `offset` of dst on. Arrays that are passed on by address do
// not stay in registers, so the rare case has a copy.
static inline __attribute__((always_inline)) void finish_direct(const Step *s, global T *dst, global const T *residual, float16 *sum,
                                                                int rows, int offset, int count, int width)
{
    const float low = s->low, high = s->high;
    const int depth_out = s->depth_out;
    if (count >= 16 && rows == width) {
        if (s->has_residual)
            PIXELS_OF(width) sum[p] = ADD_RESIDUAL(s, sum[p], LOAD16(residual, offset + p * depth_out));
        PIXELS_OF(width) STORE16(dst, offset + p * depth_out, activate16(sum[p], low, high));
    } else {
        float16 totals[TILE_PIXELS];
        PIXELS_OF(width) totals[p] = sum[p];
        finish_some(s, dst, residual, totals, rows, offset, min(count, 16));
    }
}

// UNROLLS 1: long runs are unrolled, as otherwise a third of the instructions compute addresses. Intel's compiler does worse with it.
// HOLD(value): loads of values stay where they are. Intel's compiler moves them to the front of a loop, so that sums of 48 channels, for
// which there must be AVX-512 (else values get lost), are left without registers.
#ifdef __INTEL_LLVM_COMPILER
#define UNROLLS 0
#else
#define UNROLLS 1
#endif
#if defined(__INTEL_LLVM_COMPILER) && TILE_VECTORS > 2
#define HOLD(value)                                          \
    if (vectors > 2)                                         \
    __asm__ volatile("" : "+vr"(value))
#else
#define HOLD(value)
#endif
// VALUE(p): what pixel p of a tile multiplies by weights `k`
#define ADD_PRODUCTS(VALUE, k)                                       \
    const float16 w0 = w[k];                                         \
    const float16 w1 = w[(vectors > 1 ? pitch : 0) + (k)];           \
    const float16 w2 = w[(vectors > 2 ? 2 * pitch : 0) + (k)];       \
    PREFETCH(ahead);                                                 \
    PIXELS_OF(width) {                                               \
        float16 value = (float16)(VALUE(p, k));                      \
        HOLD(value);                                                 \
        sum0[p] = fma(value, w0, sum0[p]);                           \
        if (vectors > 1)                                             \
            sum1[p] = fma(value, w1, sum1[p]);                       \
        if (vectors > 2)                                             \
            sum2[p] = fma(value, w2, sum2[p]);                       \
    }

#define OF_RUN(p, k) at[p][k]
#define OF_LIST(p, k) x[(p) * step]

// The sums of a tile of `width` pixels by 16 channels in each of `vectors`. w: weights, `pitch` from one vector to the next; ahead: weights
// to fetch, so many bytes with each input channel. is_long: 1 where runs are mostly long: short ones lose by being unrolled. It, width and
// vectors are constants.
static inline __attribute__((always_inline)) void sum_direct(const Direct *view, global const float16 *w, long pitch,
                                                             global const float16 *bias, global const uchar *ahead, int ahead_step,
                                                             int is_long, int width, int vectors, float16 *sum0, float16 *sum1,
                                                             float16 *sum2)
{
    const int length = view->length;
    const long step = view->step;
    PIXELS_OF(width) sum0[p] = bias[0];
    if (vectors > 1)
        PIXELS_OF(width) sum1[p] = bias[1];
    if (vectors > 2)
        PIXELS_OF(width) sum2[p] = bias[2];
    if (LISTS_PRODUCTS && view->offsets) {
        const int products = view->rows * view->taps * length;
        for (int k = 0; k < products; ++k, ahead += ahead_step) {
            global const float *x = view->first + view->offsets[k];
            ADD_PRODUCTS(OF_LIST, k)
        }
        return;
    }
    for (int fy = 0; fy < view->rows; ++fy) {
        global const float *x = view->first + fy * ROW_STEP(view);
        for (int fx = 0; fx < view->taps; ++fx, x += view->tap_step, w += length) {
            global const float *at[TILE_PIXELS];
            PIXELS_OF(width) {
                at[p] = x + p * step;
                APART(at[p]);
            }
            int k = 0;
            if (is_long && UNROLLS)
                for (; k + 4 <= length; k += 4)
                    _Pragma("unroll") for (int i = 0; i < 4; ++i, ahead += ahead_step) {
                        ADD_PRODUCTS(OF_RUN, k + i)
                    }
            for (; k < length; ++k, ahead += ahead_step) {
                ADD_PRODUCTS(OF_RUN, k)
            }
        }
    }
}

// Whether runs of tiles of so many vectors, the most that there are or two, are mostly long.
#define IS_LONG(vectors) (TILE_VECTORS == 1 ? 1 : (vectors) > 1)

// `rows` pixels of a tile of `width` by `vectors` (constants) of 16 channels, the last of which has what is left of `count`, from element
// `offset` of dst on.
static inline __attribute__((always_inline)) void convolve_direct(const Step *s, const Direct *view, global const float16 *w, int depth,
                                                                  global const float16 *bias, global const uchar *ahead, int ahead_step,
                                                                  global T *dst, global const T *residual, int rows, int offset,
                                                                  int count, int width, int vectors)
{
    float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS], sum2[TILE_PIXELS];
    sum_direct(view, w, depth, bias, ahead, ahead_step, IS_LONG(vectors), width, vectors, sum0, sum1, sum2);
    finish_direct(s, dst, residual, sum0, rows, offset, count, width);
    if (vectors > 1)
        finish_direct(s, dst, residual, sum1, rows, offset + 16, count - 16, width);
    if (vectors > 2)
        finish_direct(s, dst, residual, sum2, rows, offset + 32, count - 32, width);
}

// Two tiles of 16 channels with windows of one, from pixel 0 of x and dst on.
static inline void convolve_pair16(const Step *s, global const float *x, global T *dst, global const T *residual, global const float16 *w,
                                   global const float16 *bias)
{
    const int depth = s->depth_in;
    const float low = s->low, high = s->high;
    global const float *x1 = x + TILE_PIXELS * depth;
    float16 first[TILE_PIXELS], second[TILE_PIXELS];
    PIXELS first[p] = bias[0];
    PIXELS second[p] = bias[0];
    for (int k = 0; k < depth; ++k) {
        const float16 w0 = w[k];
        PIXELS first[p] = fma((float16)(x[p * depth + k]), w0, first[p]);
        PIXELS second[p] = fma((float16)(x1[p * depth + k]), w0, second[p]);
    }
    if (s->has_residual) {
        PIXELS first[p] = ADD_RESIDUAL(s, first[p], LOAD16(residual, p * 16));
        PIXELS second[p] = ADD_RESIDUAL(s, second[p], LOAD16(residual, (TILE_PIXELS + p) * 16));
    }
    PIXELS STORE16(dst, p * 16, activate16(first[p], low, high));
    PIXELS STORE16(dst, (TILE_PIXELS + p) * 16, activate16(second[p], low, high));
}

// The same with 24 channels: one sum holds the last 8 of two neighbours.
static inline void convolve_pair24(const Step *s, global const float *x, global T *dst, global const T *residual, global const float16 *w,
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
        PIXELS even[p] = ADD_RESIDUAL(s, even[p], LOAD16(residual, p * 48));
        PIXELS odd[p] = ADD_RESIDUAL(s, odd[p], LOAD16(residual, p * 48 + 24));
        PIXELS both[p] = ADD_RESIDUAL(s, both[p], (float16)(LOAD8(residual, p * 48 + 16), LOAD8(residual, p * 48 + 40)));
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
                                                     global const T *residual, global const float16 *weights, global const float16 *bias,
                                                     global float *copy)
{
    const int pixels = s->batches * s->out_height * s->out_width, last = min(part.x1, pixels / TILE_PIXELS);
    int tile = part.x0;
    for (; tile + 2 <= last; tile += 2) {
        const long pixel = (long)tile * TILE_PIXELS, offset = pixel * s->depth_out;
        global const float *x = READABLE(src, pixel * s->depth_in, 2 * TILE_PIXELS * s->depth_in, pixels * s->depth_in, copy);
        if (s->depth_out == 16)
            convolve_pair16(s, x, dst + offset, residual + offset, weights, bias);
        else
            convolve_pair24(s, x, dst + offset, residual + offset, weights, bias);
    }
    return tile;
}

#define ADD_EIGHTH(WEIGHT, i, k)                                                                                             \
    {                                                                                                                        \
        const float16 value = (float16)(x[k]);                                                                               \
        sum[i] = fma(value, WEIGHT(k), sum[i]);                                                                              \
        if (TWO_AT_MOST > 1)                                                                                                 \
            next[i] = fma(value, WEIGHT(pitch + (k)), next[i]);                                                              \
    }
#define SUM_EIGHT(WEIGHT)                                                                                                    \
    for (; k + 8 <= depth; k += 8)                                                                                           \
        _Pragma("unroll") for (int i = 0; i < 8; ++i) ADD_EIGHTH(WEIGHT, i, k + i)                                           \
    for (; k < depth; ++k)                                                                                                   \
        ADD_EIGHTH(WEIGHT, 0, k)
#define WEIGHT_OF_FLOATS(k) w[k]
#define WEIGHT_OF_HALVES(k) float16_of(halves[k])

static inline float16 total_of_eight(const float16 *sum)
{
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

// One pixel with a window of one: weights are used once, so several sums, of two blocks of channels, keep many loads on their way.
static __attribute__((noinline)) void convolve_pixel(const Step *s, Part part, global const T *src, global T *dst,
                                                      global const T *residual, global const float16 *weights, global const float16 *bias,
                                                      global float *copy)
{
    const int depth = s->depth_in, depth_out = s->depth_out, last = min(2 * part.y1, ceil_divide(depth_out, 16));
    global const float *x = READABLE(src, 0, depth, depth, copy);
    for (int block = 2 * part.y0; block < last; block += TWO_AT_MOST) {
        global const float16 *w = weights + (size_t)block * depth;
        global const ushort16 *halves = (global const ushort16 *)weights + (size_t)block * depth;
        const int blocks = min(TWO_AT_MOST, last - block);
        const long pitch = blocks > 1 ? depth : 0; // the last one alone is summed twice
        float16 sum[8], next[8];
        _Pragma("unroll") for (int i = 0; i < 8; ++i) sum[i] = next[i] = (float16)0.0f;
        int k = 0;
        if (s->half_weights) {
            SUM_EIGHT(WEIGHT_OF_HALVES)
        } else {
            SUM_EIGHT(WEIGHT_OF_FLOATS)
        }
        const float16 totals[2] = {total_of_eight(sum), total_of_eight(next)};
        for (int i = 0; i < blocks; ++i) {
            const int offset = (block + i) * 16, count = min(16, depth_out - offset);
            float16 value = bias[block + i] + totals[i];
            if (s->has_residual)
                value = ADD_RESIDUAL(s, value, load_lanes(residual, offset, count));
            store_lanes(dst, offset, activate16(value, s->low, s->high), count);
        }
    }
}

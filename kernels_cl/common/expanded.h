// SPDX-License-Identifier: Apache-2.0
// expanded.h: a convolution and the depthwise one of 3 x 3 taps after it, without a tensor in between.
// Maths, tensors  as convolve.h and depthwise.h; the step of the convolution is number `before`; src is its input
// Defines  T float | half, common/direct.h, common/depthwise.h (all required, before inclusion)
// Needs    rows of taps times what TILE_PIXELS neighbours read of a row at most WINDOW_ELEMENTS (gpu_driver/chain/expanded.py),
//          channels in between a multiple of 16, at least DEPTHWISE_PIXELS columns of the output, no dilation, strides of at most 2
// Order    32 channels at a time, rows of the convolution as the depthwise one needs them, three of which are kept
// Exact    the bits of the two steps apart
#define RING_ROWS 3
#define RING_COLUMNS 116 // of what is kept; wider pictures are cut into strips

// A place of the convolution whose window reaches beyond the image, for 32 channels, or 16 where w1 is w0.
static inline void convolve_at_border(const InputView *v, global const T *src, int b, int y, int x, global const float16 *w0,
                                      global const float16 *w1, global const float16 *bias, float16 *sums)
{
    float16 sum0 = bias[0], sum1 = bias[w1 != w0];
    const int top = y * v->stride_height - v->padding_top, left = x * v->stride_width - v->padding_left;
    for (int fy = 0, tap = 0; fy < v->filter_height; ++fy)
        for (int fx = 0; fx < v->filter_width; ++fx, tap += v->depth) {
            const int iy = top + fy * v->dilation_height, ix = left + fx * v->dilation_width;
            if (!inside(iy, v->height) || !inside(ix, v->width))
                continue;
            global const T *pixel = src + nhwc_offset(b, iy, ix, v->height, v->width, v->depth);
            for (int k = 0; k < v->depth; ++k) {
                const float16 value = (float16)(LOAD(pixel, k));
                sum0 = fma(value, w0[tap + k], sum0);
                sum1 = fma(value, w1[tap + k], sum1);
            }
        }
    sums[0] = sum0;
    sums[1] = sum1;
}

// Columns x0..x1 - 1 of row y of a convolution, channels of one block: to places[0..1], places[2..3] and so on.
static __attribute__((noinline)) void convolve_row(const Step *s, const InputView *v, global const T *src, int b, int y, int x0, int x1,
                                                    int block, float16 *places, global const uchar *constants, global float *copy)
{
    const float low = s->low, high = s->high;
    const int taps = v->filter_height * v->filter_width, depth = taps * v->depth;
    const int both = s->depth_out - block * 32 > 16;
    global const float16 *w0 = CONSTANT_AT(float16, s->weights) + (size_t)(2 * block) * depth, *w1 = both ? w0 + depth : w0;
    global const float16 *bias = CONSTANT_AT(float16, s->bias) + 2 * block;
    // inner..end - 1: the columns whose windows lie between left and right
    int inner = max(x0, ceil_divide(v->padding_left, v->stride_width));
    const int room = v->width - 1 - (v->filter_width - 1) * v->dilation_width + v->padding_left;
    int end = min(x1, room < 0 ? 0 : room / v->stride_width + 1);
    if (end - inner < TILE_PIXELS)
        inner = end = x1;
    for (int i = 0; i < x1 - x0 - (end - inner); ++i) {
        const int x = x0 + i < inner ? x0 + i : x0 + i + end - inner;
        float16 sums[2];
        convolve_at_border(v, src, b, y, x, w0, w1, bias, sums);
        places[2 * (x - x0)] = ROUND16(activate16(sums[0], low, high));
        places[2 * (x - x0) + 1] = ROUND16(activate16(sums[1], low, high));
    }
    // Rows of taps above and below the image are left out.
    const int top = y * v->stride_height - v->padding_top;
    const int first_tap = top < 0 ? ceil_divide(-top, v->dilation_height) : 0;
    const int last_tap = min(v->filter_height, top < v->height ? (v->height - 1 - top) / v->dilation_height + 1 : 0);
    const int skipped = first_tap * v->filter_width * v->depth;
    Direct view = direct_windows(v, 0);
    view.rows = last_tap - first_tap;
    const int first = nhwc_offset(b, top + first_tap * v->dilation_height, -v->padding_left, v->height, v->width, v->depth);
    const int elements = v->elements - first;
    global const T *line = src + first;
    for (int tile = inner; tile < end; tile += TILE_PIXELS) {
        const int x = min(tile, end - TILE_PIXELS);
        float16 *to = places + 2 * (x - x0);
        look_at(&view, line + (long)x * view.step, elements - x * (int)view.step, copy);
        float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
        if (TILE_VECTORS > 1 && both) {
            sum_direct(&view, w0 + skipped, w1 - w0, bias, (global const uchar *)w0, 0, 0, TILE_PIXELS, 2, sum0, sum1, 0);
            PIXELS to[2 * p] = ROUND16(activate16(sum0[p], low, high));
            PIXELS to[2 * p + 1] = ROUND16(activate16(sum1[p], low, high));
        } else {
            for (int lanes = 0; lanes < 1 + both; ++lanes, ++to) {
                sum_direct(&view, (lanes ? w1 : w0) + skipped, 0, bias + lanes, (global const uchar *)w0, 0, 0, TILE_PIXELS, 1, sum0, 0, 0);
                PIXELS to[2 * p] = ROUND16(activate16(sum0[p], low, high));
            }
        }
    }
}

// A row of the depthwise convolution, 16 channels of `count` places, from three rows of places.
#define DEFINE_DEPTHWISE_ROW(STRIDE)                                                                                         \
    static void depthwise_row_stride##STRIDE(const Step *s, const float16 *row0, const float16 *row1, const float16 *row2,   \
                                             global const float16 *filter, float16 bias, global T *dst, int count)           \
    {                                                                                                                        \
        const float low = s->low, high = s->high;                                                                            \
        const int depth = s->depth_in;                                                                                       \
        const float16 w0 = filter[0], w1 = filter[1], w2 = filter[2], w3 = filter[3], w4 = filter[4], w5 = filter[5],        \
                      w6 = filter[6], w7 = filter[7], w8 = filter[8];                                                        \
        for (int tile = 0; tile < count; tile += DEPTHWISE_PIXELS) {                                                         \
            const int x = min(tile, count - DEPTHWISE_PIXELS), at = 2 * x * STRIDE;                                          \
            float16 sum[DEPTHWISE_PIXELS];                                                                                   \
            NEIGHBOURS sum[p] = bias;                                                                                        \
            ADD_PLACES(row0 + at, w0, w1, w2, STRIDE)                                                                        \
            ADD_PLACES(row1 + at, w3, w4, w5, STRIDE)                                                                        \
            ADD_PLACES(row2 + at, w6, w7, w8, STRIDE)                                                                        \
            NEIGHBOURS STORE16(dst, (x + p) * depth, activate16(sum[p], low, high));                                         \
        }                                                                                                                    \
    }
#define ADD_PLACES(places, left, middle, right, STRIDE)                                                                      \
    NEIGHBOURS sum[p] = fma((places)[2 * p * STRIDE], left, sum[p]);                                                         \
    NEIGHBOURS sum[p] = fma((places)[2 * (p * STRIDE + 1)], middle, sum[p]);                                                 \
    NEIGHBOURS sum[p] = fma((places)[2 * (p * STRIDE + 2)], right, sum[p]);
DEFINE_DEPTHWISE_ROW(1)
DEFINE_DEPTHWISE_ROW(2)

// part: rows of the output, blocks of 32 channels.
// Compilers take less time for functions of their own.
static __attribute__((noinline)) void expanded(const Step *before, const Step *s, Part part, global const T *src, global T *dst,
                                                global const uchar *constants, global float *copy)
{
    float16 ring[(RING_ROWS + 1) * RING_COLUMNS * 2]; // the last row is nothing but zeros
    const InputView view = input_view(before);
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width;
    const int stride = s->stride_width, strips = ceil_divide(out_width, (RING_COLUMNS - 3) / stride + 1);
    for (int i = 0; i < RING_COLUMNS * 2; ++i)
        ring[RING_ROWS * RING_COLUMNS * 2 + i] = (float16)0.0f;
    for (int block = part.y0; block < part.y1; ++block)
        for (int strip = 0; strip < strips; ++strip) {
            const int ox1 = out_width * (strip + 1) / strips, ox0 = max(0, min(out_width * strip / strips, ox1 - DEPTHWISE_PIXELS));
            const int left = ox0 * stride - s->padding_left, right = (ox1 - 1) * stride - s->padding_left + 3;
            const int x0 = max(0, left), x1 = min(right, width);
            for (int row = 0; row < RING_ROWS; ++row)
                for (int i = 0; i < right - left - (x1 - x0); ++i) {
                    float16 *place = ring + (row * RING_COLUMNS + (i < x0 - left ? i : i + x1 - x0)) * 2;
                    place[0] = place[1] = (float16)0.0f;
                }
            int image = -1, done = 0; // rows of the convolution before `done` are, of this image
            for (int row = part.x0; row < part.x1; ++row) {
                const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;
                if (b != image)
                    done = 0;
                image = b;
                for (done = max(done, max(top, 0)); done < min(top + 3, height); ++done)
                    convolve_row(before, &view, src, b, done, x0, x1, block, ring + (done % RING_ROWS * RING_COLUMNS + x0 - left) * 2,
                                 constants, copy);
                const float16 *rows[3];
                for (int fy = 0; fy < 3; ++fy)
                    rows[fy] = ring + (inside(top + fy, height) ? (top + fy) % RING_ROWS : RING_ROWS) * RING_COLUMNS * 2;
                for (int half_block = 2 * block; half_block < min(2 * block + 2, depth / 16); ++half_block) {
                    global const float16 *filter = CONSTANT_AT(float16, s->weights) + (size_t)half_block * 9;
                    const float16 bias = CONSTANT_AT(float16, s->bias)[half_block];
                    global T *y = dst + (long)(row * out_width + ox0) * depth + half_block * 16;
                    const int at = half_block % 2;
                    if (stride == 1)
                        depthwise_row_stride1(s, rows[0] + at, rows[1] + at, rows[2] + at, filter, bias, y, ox1 - ox0);
                    else
                        depthwise_row_stride2(s, rows[0] + at, rows[1] + at, rows[2] + at, filter, bias, y, ox1 - ox0);
                }
            }
        }
}

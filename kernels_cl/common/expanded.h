// SPDX-License-Identifier: Apache-2.0
// expanded.h: a convolution and the depthwise one of 3 x 3 taps after it, without a tensor in between.
// Maths, tensors  as convolve.h and depthwise.h; the step of the convolution is number `before`; src is its input
// Defines  T float, common/direct.h, common/depthwise.h (all required, before inclusion)
// Needs    channels in between a multiple of 16, at least DEPTHWISE_PIXELS columns of the output, no dilation, strides of at most 2
// Order    32 channels at a time, rows of the convolution as the depthwise one needs them, three of which are kept
// Exact    fused multiply-adds; the convolution's as direct.h says, at borders by ascending k
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
                sum0 = fma((float16)(pixel[k]), w0[tap + k], sum0);
                sum1 = fma((float16)(pixel[k]), w1[tap + k], sum1);
            }
        }
    sums[0] = sum0;
    sums[1] = sum1;
}

// Columns x0..x1 - 1 of row y of a convolution, channels of one block: to places[0..1], places[2..3] and so on.
static void convolve_row(const Step *s, const InputView *v, global const T *src, int b, int y, int x0, int x1, int block, float16 *places,
                         global const uchar *constants)
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
        places[2 * (x - x0)] = activate16(sums[0], low, high);
        places[2 * (x - x0) + 1] = activate16(sums[1], low, high);
    }
    // Rows of taps above and below the image are left out.
    const int top = y * v->stride_height - v->padding_top;
    const int first_tap = top < 0 ? ceil_divide(-top, v->dilation_height) : 0;
    const int last_tap = min(v->filter_height, top < v->height ? (v->height - 1 - top) / v->dilation_height + 1 : 0);
    const int skipped = first_tap * v->filter_width * v->depth;
    const int joined = v->dilation_width == 1;
    Direct view;
    view.step = v->stride_width * v->depth;
    view.tap_step = v->dilation_width * v->depth;
    view.row_step = (long)v->dilation_height * v->width * v->depth;
    view.rows = last_tap - first_tap;
    view.taps = joined ? 1 : v->filter_width;
    view.length = joined ? v->filter_width * v->depth : v->depth;
    global const T *line = src + (long)nhwc_offset(b, top + first_tap * v->dilation_height, -v->padding_left, v->height, v->width, v->depth);
    for (int tile = inner; tile < end; tile += TILE_PIXELS) {
        const int x = min(tile, end - TILE_PIXELS);
        float16 *to = places + 2 * (x - x0);
        view.first = line + (long)x * view.step;
        float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
        if (both) {
            sum_direct32(&view, w0 + skipped, w1 + skipped, bias, w0, sum0, sum1);
            PIXELS to[2 * p] = activate16(sum0[p], low, high);
            PIXELS to[2 * p + 1] = activate16(sum1[p], low, high);
        } else {
            sum_direct16(&view, w0 + skipped, bias, sum0);
            PIXELS to[2 * p] = activate16(sum0[p], low, high);
        }
    }
}

// Adds one row of taps to the sums of neighbours, from 16 channels of places.
#define DEFINE_ADD_KEPT_ROW(STRIDE)                                                                                          \
    static inline void add_kept_row_stride##STRIDE(float16 *sum, const float16 *places, global const float16 *w)            \
    {                                                                                                                        \
        float16 column[(DEPTHWISE_PIXELS - 1) * STRIDE + 3];                                                                 \
        _Pragma("unroll") for (int k = 0; k < (DEPTHWISE_PIXELS - 1) * STRIDE + 3; ++k) column[k] = places[2 * k];           \
        NEIGHBOURS sum[p] = fma(column[p * STRIDE], w[0], sum[p]);                                                           \
        NEIGHBOURS sum[p] = fma(column[p * STRIDE + 1], w[1], sum[p]);                                                       \
        NEIGHBOURS sum[p] = fma(column[p * STRIDE + 2], w[2], sum[p]);                                                       \
    }
DEFINE_ADD_KEPT_ROW(1)
DEFINE_ADD_KEPT_ROW(2)

// part: rows of the output, blocks of 32 channels.
static void expanded(const Step *before, const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    float16 ring[RING_ROWS * RING_COLUMNS * 2];
    const InputView view = input_view(before);
    const float low = s->low, high = s->high;
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width;
    const int stride = s->stride_width, strips = ceil_divide(out_width, (RING_COLUMNS - 3) / stride + 1);
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
                                 constants);
                for (int half_block = 2 * block; half_block < min(2 * block + 2, depth / 16); ++half_block) {
                    global const float16 *filter = CONSTANT_AT(float16, s->weights) + (size_t)half_block * 9;
                    const float16 start = CONSTANT_AT(float16, s->bias)[half_block];
                    for (int tile = ox0; tile < ox1; tile += DEPTHWISE_PIXELS) {
                        const int ox = min(tile, ox1 - DEPTHWISE_PIXELS);
                        float16 sum[DEPTHWISE_PIXELS];
                        NEIGHBOURS sum[p] = (float16)0.0f;
                        for (int fy = 0; fy < 3; ++fy) {
                            const int y = top + fy;
                            if (!inside(y, height))
                                continue;
                            const float16 *places = ring + (y % RING_ROWS * RING_COLUMNS + (ox - ox0) * stride) * 2 + half_block % 2;
                            if (stride == 1)
                                add_kept_row_stride1(sum, places, filter + 3 * fy);
                            else
                                add_kept_row_stride2(sum, places, filter + 3 * fy);
                        }
                        global T *y = dst + (long)(row * out_width + ox) * depth + half_block * 16;
                        NEIGHBOURS STORE16(y, p * depth, activate16(sum[p] + start, low, high));
                    }
                }
            }
        }
}

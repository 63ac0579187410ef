// SPDX-License-Identifier: Apache-2.0
// depthwise.h: a convolution of every channel with a filter of its own.
// Maths    y[b,oy,ox,c] = act(bias[c] + sum over fy, fx of (x[b,iy,ix,c] - zero_in) * (w[fy,fx,c] - zero_w)), act, iy and ix as convolve.h
// Tensors  src [batches, height, width, depth_in], dst [batches, out_height, out_width, depth_in] of T, dense
//          weights float, packed: [ceil(depth / 16)][filter_height * filter_width][16], zero_w subtracted; the last block holds
//          channels depth - 16 .. depth - 1, or 0 .. depth - 1 and zeros if depth < 16 (packing.py: pack_depthwise_weights)
//          bias, multipliers, shifts, roundings: [ceil(depth / 16) * 16] in the same channel order (packing.py: pack_depthwise_channels)
//          where depth is no multiple of 16 and > 16, or out_width none of DEPTHWISE_PIXELS, an element may be written twice, the same
// Defines  DEPTHWISE5: 0 | 1 (required): 1: filters of 5 columns side by side are done as those of 3
// Exact    quantised: yes, if filter_height * filter_width <= 256 (packing.py: fits_depthwise)
//          float: the bias first, then one fused multiply-add per tap, row by row
#ifndef DEPTHWISE_PIXELS
#define DEPTHWISE_PIXELS 7 // neighbours in a row that are computed at once; expanded.h needs at most 7
#endif
#define NEIGHBOURS _Pragma("unroll") for (int p = 0; p < DEPTHWISE_PIXELS; ++p)

#if QUANTIZED
#define TAP16(src, zero) WIDEN(LOAD16(src, 0) - (zero), float16)
#define TAP_LANES(src, zero, lanes) WIDEN(load_lanes(src, 0, lanes) - (zero), float16)
#define FIRST_SUM(bias) (float16)0.0f
#define TOTAL(sum, bias) (WIDEN(sum, int16) + (bias))
#else
#define TAP16(src, zero) LOAD16(src, 0)
#define TAP_LANES(src, zero, lanes) load_lanes(src, 0, lanes)
#define FIRST_SUM(bias) (bias)
#define TOTAL(sum, bias) (sum)
#endif

// One tap of DEPTHWISE_PIXELS neighbours whose first is at src, `step` elements apart; those outside the image add nothing.
// last: from here on sixteen elements would reach beyond the tensor; then `lanes` are read
static inline void add_tap(float16 *sum, global const T *src, long step, float16 tap, int zero, int x, int stride, int width,
                           global const T *last, int lanes)
{
    if (lanes < 16 && src + (DEPTHWISE_PIXELS - 1) * step > last) {
        NEIGHBOURS { // unrolled, as sums stay in registers only then
            if (inside(x, width))
                sum[p] = fma(TAP_LANES(src, zero, lanes), tap, sum[p]);
            src += step;
            x += stride;
        }
    } else if (x >= 0 && x + (DEPTHWISE_PIXELS - 1) * stride < width) {
        NEIGHBOURS {
            sum[p] = fma(TAP16(src, zero), tap, sum[p]);
            src += step;
        }
    } else {
        NEIGHBOURS {
            if (inside(x, width))
                sum[p] = fma(TAP16(src, zero), tap, sum[p]);
            src += step;
            x += stride;
        }
    }
}

// Adds the products of one row of a filter TAPS wide to the sums of DEPTHWISE_PIXELS neighbours whose first window begins at src, column x.
// Every column is read once, for all windows that have it.
#define ADD_COLUMN(TAPS, STRIDE)                                             \
    const float16 column = TAP16(src, zero);                                 \
    NEIGHBOURS {                                                             \
        if (k >= p * (STRIDE) && k < p * (STRIDE) + (TAPS)) /* a constant */ \
            sum[p] = fma(column, w[k - p * (STRIDE)], sum[p]);               \
    }
#define DEFINE_ADD_ROW(TAPS, STRIDE)                                                                                         \
    static inline void add_row##TAPS##_stride##STRIDE(float16 *sum, global const T *src, long step, global const float16 *w,  \
                                                      int zero, int x, int width)                                            \
    {                                                                                                                        \
        const int columns = (DEPTHWISE_PIXELS - 1) * (STRIDE) + (TAPS);                                                      \
        const int outer = (TAPS) / 2; /* columns on either side that may lie outside: mostly none or these do */             \
        if (x >= -outer && x + columns <= width + outer) {                                                                   \
            _Pragma("unroll") for (int k = 0; k < columns; ++k, src += step) {                                               \
                if ((k >= outer || x + k >= 0) && (k < columns - outer || x + k < width)) {                                  \
                    ADD_COLUMN(TAPS, STRIDE)                                                                                 \
                }                                                                                                            \
            }                                                                                                                \
        } else {                                                                                                             \
            _Pragma("unroll") for (int k = 0; k < columns; ++k, src += step) {                                               \
                if (inside(x + k, width)) {                                                                                  \
                    ADD_COLUMN(TAPS, STRIDE)                                                                                 \
                }                                                                                                            \
            }                                                                                                                \
        }                                                                                                                    \
    }
DEFINE_ADD_ROW(3, 1)
DEFINE_ADD_ROW(3, 2)
#define MOST_COLUMNS (DEPTHWISE5 ? 5 : 3)
#if DEPTHWISE5
DEFINE_ADD_ROW(5, 1)
DEFINE_ADD_ROW(5, 2)
#endif

// Every dilation_width-th column from the `first` on, as if no others were between them.
static void depthwise_by_columns(const Step *s, Part part, int first, global const T *src, global T *dst, global const uchar *constants)
{
    const int height = s->height, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width;
    const int filter_height = s->filter_height, filter_width = s->filter_width;
    const int stride_width = s->stride_width, zero_in = s->zero_in, apart = s->dilation_width;
    const int columns = ceil_divide(out_width - first, apart);
    const long step = (long)apart * depth;
    const COMPUTE_T low = s->low, high = s->high;
    for (int tile = 0; tile < columns; tile += DEPTHWISE_PIXELS) {
        const int ox = first + apart * max(0, min(tile, columns - DEPTHWISE_PIXELS)), left = ox * stride_width - s->padding_left;
        const int x_left = left < 0 ? -ceil_divide(-left, apart) : left / apart, width = ceil_divide(s->width - left + x_left * apart, apart);
        for (int block = part.y0; block < part.y1; ++block) {
            const int channel = max(0, min(block * 16, depth - 16));
            global const float16 *filter = CONSTANT_AT(float16, s->weights) + (size_t)block * filter_height * filter_width;
            const COMPUTE_T16 start = CONSTANT_AT(COMPUTE_T16, s->bias)[block];
#if QUANTIZED
            const int16 multiplier = CONSTANT_AT(int16, s->multipliers)[block], shift = CONSTANT_AT(int16, s->shifts)[block];
            const int16 rounding = CONSTANT_AT(int16, s->roundings)[block];
#endif
            for (int row = part.x0; row < part.x1; ++row) {
                const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;
                float16 sum[DEPTHWISE_PIXELS];
                NEIGHBOURS sum[p] = FIRST_SUM(start);
                for (int fy = 0; fy < filter_height; ++fy) {
                    const int y = top + fy * s->dilation_height;
                    if (!inside(y, height))
                        continue;
                    global const T *x = src + (long)nhwc_offset(b, y, left, height, s->width, depth) + channel;
                    global const float16 *w = filter + fy * filter_width;
#if DEPTHWISE5
                    if (filter_width == 5 && stride_width == 1)
                        add_row5_stride1(sum, x, step, w, zero_in, x_left, width);
                    else if (filter_width == 5)
                        add_row5_stride2(sum, x, step, w, zero_in, x_left, width);
                    else
#endif
                        if (stride_width == 1)
                        add_row3_stride1(sum, x, step, w, zero_in, x_left, width);
                    else
                        add_row3_stride2(sum, x, step, w, zero_in, x_left, width);
                }
                global T *y = dst + (long)(row * out_width + ox) * depth + channel;
                NEIGHBOURS {
                    const COMPUTE_T16 total = TOTAL(sum[p], start);
#if QUANTIZED
                    const int16 value = requantize16(s, total, multiplier, shift, rounding);
#else
                    const float16 value = activate16(total, low, high);
#endif
                    STORE16(y, 0, value);
                    y += step;
                }
            }
        }
    }
}

// Whether depthwise_by_columns applies: enough output pixels and channels for its tiles.
static inline int goes_by_columns(const Step *s)
{
    return (s->filter_width == 3 || s->filter_width == MOST_COLUMNS) && s->stride_width <= (s->dilation_width == 1 ? 2 : 1)
           && s->out_width >= DEPTHWISE_PIXELS * s->dilation_width && s->depth_in >= 16;
}

static void depthwise(const Step *s, Part part, global const T *src, global T *dst,
                                    global const uchar *constants)
{
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width;
    const int filter_height = s->filter_height, filter_width = s->filter_width;
    const int dilation_height = s->dilation_height, dilation_width = s->dilation_width;
    const int stride_width = s->stride_width, zero_in = s->zero_in;
    const COMPUTE_T low = s->low, high = s->high;
    const int lanes = min(depth, 16), count = min(DEPTHWISE_PIXELS, out_width);
    const long step = stride_width * depth, tap_step = dilation_width * depth;
    global const T *last = src + (long)s->batches * height * width * depth - 16;
    for (int tile = 0; tile < out_width; tile += DEPTHWISE_PIXELS) {
        const int ox = max(0, min(tile, out_width - DEPTHWISE_PIXELS)), left = ox * stride_width - s->padding_left;
        for (int block = part.y0; block < part.y1; ++block) {
            const int channel = max(0, min(block * 16, depth - 16));
            global const float16 *filter = CONSTANT_AT(float16, s->weights) + (size_t)block * filter_height * filter_width;
            const COMPUTE_T16 start = CONSTANT_AT(COMPUTE_T16, s->bias)[block];
#if QUANTIZED
            const int16 multiplier = CONSTANT_AT(int16, s->multipliers)[block], shift = CONSTANT_AT(int16, s->shifts)[block];
            const int16 rounding = CONSTANT_AT(int16, s->roundings)[block];
#endif
            for (int row = part.x0; row < part.x1; ++row) {
                const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;
                float16 sum[DEPTHWISE_PIXELS];
                NEIGHBOURS sum[p] = FIRST_SUM(start);
                for (int fy = 0; fy < filter_height; ++fy) {
                    const int y = top + fy * dilation_height;
                    if (!inside(y, height))
                        continue;
                    global const T *x = src + (long)nhwc_offset(b, y, left, height, width, depth) + channel;
                    global const float16 *w = filter + fy * filter_width;
                    for (int fx = 0; fx < filter_width; ++fx, x += tap_step)
                        add_tap(sum, x, step, w[fx], zero_in, left + fx * dilation_width, stride_width, width, last, lanes);
                }
                COMPUTE_T16 results[DEPTHWISE_PIXELS];
                NEIGHBOURS results[p] = TOTAL(sum[p], start);
                global T *y = dst + (long)(row * out_width + ox) * depth + channel;
                for (int p = 0; p < count; ++p, y += depth) {
#if QUANTIZED
                    const int16 value = requantize16(s, results[p], multiplier, shift, rounding);
#else
                    const float16 value = activate16(results[p], low, high);
#endif
                    store_lanes(y, 0, value, lanes);
                }
            }
        }
    }
}

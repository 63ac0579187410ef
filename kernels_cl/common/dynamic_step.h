// SPDX-License-Identifier: Apache-2.0
// dynamic_step.h: a convolution or a FULLY_CONNECTED of float, whose weights were bytes, on bytes that are made of its inputs in every run
// ("dynamic range quantisation"): as steps of chain.cl, which find the ranges of images, make bytes of them, and multiply. Where a product
// reads one pixel, or a row of a FULLY_CONNECTED, this has a range of its own, and one step finds it and makes its bytes.
// Maths    of each image or row: low = min(0, min x), high = max(0, max x), scale = (high - low) / 255,
//          zero = round(-low / scale), q = clamp(round(x / scale + zero), 0, 255), as XNNPACK does for such weights;
//          y[b,oy,ox,o] = act((sum over fy, fx, i of q[b,iy,ix,i] * w[o,fy,fx,i] - zero * sum of w[o]) * scale * scale_w[o] + bias[o] [+ residual])
//          images with a value that is no finite number give NaN
// Tensors  x, y, residual of float, dense; ranges float2 [batches, level_rows], lowest and highest of equal parts of an image
//          q uchar [batches, height, width, depth_in] with its padding, `zero`; bytes behind it may be read, not used
//          of rows, level_rows 0: x [out_width, depth_in], q Levels [out_width] and uchar [out_width, depth_in] behind them
//          weights char [ceil(depth_out / 16)][runs][ceil(length of a run / 4)][16][4], missing ones 0; a run is a row of the filter, or
//          with dilation_width more than 1 a tap (convolution/dynamic.py: pack_weights); bias float, multipliers: sums of w int, shifts: scale_w float: [ceil(depth_out / 16) * 16]
// Defines  DOT4: 1 | 2 | 3, common/dot4.h, common/tile.h, UnalignedUchar16 (required, before inclusion)
// Needs    taps * depth_in <= 65536
// Units    tasks of bytes: rows of the padded image, or of x; of products: rows of pixels, or tiles of TILE_PIXELS if there is only one row
// Exact    sums of products; what rounds is the making of bytes, one division and two fused multiply-adds

// What a byte is worth, 1 / scale, and the byte of 0.
typedef struct {
    float scale, inverse;
    int zero;
} Levels;

// Adding it leaves an integer below 2^22, rounded, in the lowest bits of a float.
#define ROUNDING 12582912.0f

// Of 16 ranges; those of at most FLT_MIN are as good as all 0.
static inline void find_levels(Levels *levels, float16 low, float16 high)
{
    float scales[16], inverses[16];
    int zeros[16];
    const float16 spread = high / 255.0f - low / 255.0f;
    const float16 scale = spread <= FLT_MIN ? (float16)1.0f : spread <= FLT_MAX ? spread : (float16)NAN;
    vstore16(scale, 0, scales);
    vstore16(1.0f / scale, 0, inverses);
    vstore16(spread > FLT_MIN && spread <= FLT_MAX ? as_int16(ROUNDING - low / scale) & 255 : (int16)0, 0, zeros);
    for (int i = 0; i < 16; ++i)
        levels[i] = (Levels){scales[i], inverses[i], zeros[i]};
}

static inline Levels levels_of_image(global const float2 *ranges, int parts, int image)
{
    float2 range = 0.0f;
    for (int i = image * parts; i < (image + 1) * parts; ++i)
        range = (float2)(min(range.x, ranges[i].x), max(range.y, ranges[i].y));
    Levels levels[16];
    find_levels(levels, (float16)range.x, (float16)range.y);
    return levels[0];
}

#define EXTEND_RANGE(values)                       \
    {                                              \
        const float16 value = values;              \
        low = value < low ? value : low;           \
        high = value > high ? value : high;        \
        wrong = fma(value, (float16)0.0f, wrong);  \
    }

static inline float2 range_of(global const float *x, int count)
{
    float16 low = 0.0f, high = 0.0f, wrong = 0.0f; // wrong: NaN where a value is no finite number
    if (count < 16)
        EXTEND_RANGE(load_lanes(x, 0, count))
    else
        for (int i = 0; i < count; i += 16)
            EXTEND_RANGE(LOAD16(x, min(i, count - 16))) // of the last some again
    const float8 low8 = min(low.lo, low.hi), high8 = max(high.lo, high.hi), wrong8 = wrong.lo + wrong.hi;
    const float4 low4 = min(low8.lo, low8.hi), high4 = max(high8.lo, high8.hi), wrong4 = wrong8.lo + wrong8.hi;
    const float2 low2 = min(low4.lo, low4.hi), high2 = max(high4.lo, high4.hi), wrong2 = wrong4.lo + wrong4.hi;
    if (wrong2.x + wrong2.y != 0.0f)
        return (float2)(-INFINITY, INFINITY);
    return (float2)(min(low2.x, low2.y), max(high2.x, high2.y));
}

static void find_ranges(const Step *s, Part part, global const float *src, global float2 *dst)
{
    const int length = s->depth_in, last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    for (int row = part.x0 * s->unit_pixels; row < last; ++row)
        dst[row] = range_of(src + (size_t)row * length, length);
}

typedef struct __attribute__((packed)) {
    int value;
} UnalignedQuad;

static inline void fill_bytes(global uchar *dst, int count, int value)
{
    int i = 0;
    for (; i + 16 <= count; i += 16)
        ((global UnalignedUchar16 *)(dst + i))->value = (uchar16)(uchar)value;
    for (; i < count; ++i)
        dst[i] = value;
}

static inline uchar16 quantized(float16 x, float inverse, float zero)
{
    const float16 scaled = fma(x, (float16)inverse, (float16)zero);
    const int16 value = as_int16(min(max(scaled, (float16)0.0f), (float16)255.0f) + (float16)ROUNDING) & (int16)255;
    return WIDEN(value, uchar16);
}

static inline void quantize_run(global uchar *dst, global const float *src, int count, Levels levels)
{
    const float inverse = levels.inverse, zero = (float)levels.zero;
    if (count < 16) {
        uchar some[16];
        vstore16(quantized(load_lanes(src, 0, count), inverse, zero), 0, some);
        for (int i = 0; i < count; ++i)
            dst[i] = some[i];
    } else {
        for (int i = 0; i < count; i += 16) {
            const int at = min(i, count - 16);
            ((global UnalignedUchar16 *)(dst + at))->value = quantized(LOAD16(src, at), inverse, zero);
        }
    }
}

static void make_bytes(const Step *s, Part part, global const float *src, global uchar *dst, global const float2 *ranges)
{
    const int depth = s->depth_in, length = s->out_width * depth;
    const int cut = min(max(0, -s->padding_left), s->width) * depth, left = min(max(0, s->padding_left), s->out_width) * depth;
    const int inside = max(0, min(s->width * depth - cut, length - left));
    int known = -1;
    Levels levels = {1.0f, 1.0f, 0};
    for (int row = part.x0; row < part.x1; ++row) {
        const int b = row / s->out_height, y = row - b * s->out_height - s->padding_top;
        global uchar *line = dst + (size_t)row * length;
        if (b != known)
            levels = levels_of_image(ranges, s->level_rows, b);
        known = b;
        if (y < 0 || y >= s->height) {
            fill_bytes(line, length, levels.zero);
            continue;
        }
        fill_bytes(line, left, levels.zero);
        quantize_run(line + left, src + ((size_t)b * s->height + y) * s->width * depth + cut, inside, levels);
        fill_bytes(line + left + inside, length - left - inside, levels.zero);
    }
}

static void make_bytes_of_rows(const Step *s, Part part, global const float *src, global uchar *dst)
{
    const int depth = s->depth_in, last = min(part.x1 * s->unit_pixels, s->out_width);
    global Levels *levels = (global Levels *)dst;
    dst += s->out_width * sizeof(Levels);
    for (int first = part.x0 * s->unit_pixels; first < last; first += 16) {
        const int count = min(16, last - first);
        float lows[16], highs[16];
        Levels own[16];
        for (int i = 0; i < 16; ++i)
            lows[i] = highs[i] = 0.0f;
        for (int i = 0; i < count; ++i) {
            const float2 range = range_of(src + (size_t)(first + i) * depth, depth);
            lows[i] = range.x;
            highs[i] = range.y;
        }
        find_levels(own, vload16(0, lows), vload16(0, highs));
        for (int i = 0; i < count; ++i) {
            const size_t row = first + i;
            levels[row] = own[i];
            quantize_run(dst + row * depth, src + row * depth, depth, own[i]);
        }
    }
}

static inline int16 spread_quad(global const uchar *x)
{
    return (int16)(((global const UnalignedQuad *)x)->value);
}

typedef struct {
    global const int16 *weights, *sums;
    global const float16 *bias, *scales;
    int across, runs, quads; // runs of each row of the filter, of all, and quads of all
    int apart;               // bytes between two runs of a row
} BytesOf;

static inline BytesOf bytes_of_step(const Step *s, global const uchar *constants)
{
    const int across = s->dilation_width > 1 ? s->filter_width : 1, runs = s->filter_height * across;
    return (BytesOf){CONSTANT_AT(int16, s->weights), CONSTANT_AT(int16, s->multipliers), CONSTANT_AT(float16, s->bias),
                     CONSTANT_AT(float16, s->shifts), across, runs,
                     runs * ceil_divide(s->filter_width / across * s->depth_in, 4), s->dilation_width * s->depth_in};
}

static inline float16 real_sum(const BytesOf *of, int vector, int16 sum, Levels levels)
{
    return fma(WIDEN(sum - of->sums[vector] * levels.zero, float16), of->scales[vector] * levels.scale, of->bias[vector]);
}

// TILE_PIXELS pixels, `step` bytes apart, of which `rows` are stored, by `vectors` of 16 channels, a constant.
static inline __attribute__((always_inline)) void multiply_tile_of_bytes(const Step *s, const BytesOf *of, global const uchar *x, long step,
                                                                         long run_step, int vector, const Levels *levels, global float *dst,
                                                                         global const float *residual, int rows, int offset, int vectors)
{
    const int runs = of->runs, length = of->quads / runs, channels = s->depth_out - vector * 16;
    const long to_next_row = run_step - (of->across - 1) * of->apart;
    global const int16 *w0 = of->weights + (size_t)vector * of->quads, *w1 = w0 + (vectors > 1 ? of->quads : 0);
    int16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
    PIXELS sum0[p] = sum1[p] = (int16)0;
    for (int run = 1; run <= runs; ++run) {
        for (int q = 0; q < length; ++q) {
            const int16 a = w0[q], b = w1[q];
            PIXELS {
                const int16 value = spread_quad(x + p * step + 4 * q);
                sum0[p] = dot4_16(sum0[p], value, a);
                if (vectors > 1)
                    sum1[p] = dot4_16(sum1[p], value, b);
            }
        }
        w0 += length;
        w1 += length;
        x += run % of->across ? of->apart : to_next_row;
    }
    float16 totals[TILE_PIXELS];
    PIXELS totals[p] = real_sum(of, vector, sum0[p], levels[p]);
    finish_block(s, dst, residual, totals, rows, offset, min(16, channels), 0, 0, 0);
    if (vectors > 1) {
        PIXELS totals[p] = real_sum(of, vector + 1, sum1[p], levels[p]);
        finish_block(s, dst, residual, totals, rows, offset + 16, min(16, channels - 16), 0, 0, 0);
    }
}

// The same for vectors first .. end - 1.
static __attribute__((noinline)) void multiply_tiles_of_bytes(const Step *s, const BytesOf *of, global const uchar *x, long step, long run_step, int first, int end,
                                           const Levels *levels, global float *dst, global const float *residual, int rows, int first_pixel)
{
    for (int vector = first; vector < end; vector += VECTORS) {
        const int offset = first_pixel * s->depth_out + vector * 16;
        if (VECTORS > 1 && vector + 1 < end)
            multiply_tile_of_bytes(s, of, x, step, run_step, vector, levels, dst, residual, rows, offset, 2);
        else
            multiply_tile_of_bytes(s, of, x, step, run_step, vector, levels, dst, residual, rows, offset, 1);
    }
}

#define ONE_ROW 4 // vectors of a row that is alone

// One row by ONE_ROW vectors, or by one.
static inline __attribute__((always_inline)) void multiply_row_of_bytes(const Step *s, const BytesOf *of, global const uchar *x, int vector,
                                                                        Levels levels, global float *dst, global const float *residual,
                                                                        int vectors)
{
    const int quads = of->quads;
    const float low = s->low, high = s->high;
    global const int16 *w = of->weights + (size_t)vector * quads;
    int16 sum[ONE_ROW];
    for (int v = 0; v < vectors; ++v)
        sum[v] = (int16)0;
    for (int q = 0; q < quads; ++q) {
        const int16 value = spread_quad(x + 4 * q);
        _Pragma("unroll") for (int v = 0; v < vectors; ++v) sum[v] = dot4_16(sum[v], value, w[(size_t)v * quads + q]);
    }
    _Pragma("unroll") for (int v = 0; v < vectors; ++v) {
        const int channel = (vector + v) * 16, count = min(16, s->depth_out - channel);
        float16 value = real_sum(of, vector + v, sum[v], levels);
        if (s->has_residual)
            value += load_lanes(residual, channel, count);
        store_lanes(dst, channel, activate16(value, low, high), count);
    }
}

static void multiply_bytes(const Step *s, Part part, global const uchar *src, global float *dst, global const float *residual,
                           global const float2 *ranges, global const uchar *constants)
{
    const BytesOf of = bytes_of_step(s, constants);
    const int pixels = s->batches * s->out_height * s->out_width, by_rows = s->level_rows == 0;
    const int begin = part.x0 * s->unit_pixels, end = min(part.x1 * s->unit_pixels, pixels);
    const int end_vector = min(2 * part.y1, ceil_divide(s->depth_out, 16)), group = max(2, GROUP_QUADS / of.quads / 2 * 2);
    // Pixels that a tile has beyond its row are read too: a row of one pixel may lie where so many strides are far away.
    const long step = s->out_width > 1 ? (long)s->stride_width * s->depth_in : 0, run_step = (long)s->dilation_height * s->width * s->depth_in;
    global const Levels *const of_rows = (global const Levels *)src;
    if (by_rows)
        src += pixels * sizeof(Levels);
    if (by_rows && pixels == 1) {
        int vector = 2 * part.y0;
        for (; vector + ONE_ROW <= end_vector; vector += ONE_ROW)
            multiply_row_of_bytes(s, &of, src, vector, of_rows[0], dst, residual, ONE_ROW);
        for (; vector < end_vector; ++vector)
            multiply_row_of_bytes(s, &of, src, vector, of_rows[0], dst, residual, 1);
        return;
    }
    Levels levels[TILE_PIXELS];
    int known = -1;
    for (int vector = 2 * part.y0; vector < end_vector; vector += group) {
        int rows;
        for (int first = begin; first < end; first += rows) {
            const int row = first / s->out_width, x = first - row * s->out_width, b = row / s->out_height;
            const long y = (long)b * s->height + (row - b * s->out_height) * s->stride_height;
            rows = min(TILE_PIXELS, min(end - first, s->out_width - x));
            if (by_rows) {
                PIXELS levels[p] = of_rows[min(first + p, pixels - 1)];
            } else if (b != known) {
                const Levels own = levels_of_image(ranges, s->level_rows, b);
                PIXELS levels[p] = own;
                known = b;
            }
            multiply_tiles_of_bytes(s, &of, src + y * s->width * s->depth_in + x * step, step, run_step, vector,
                                    min(vector + group, end_vector), levels, dst, residual, rows, first);
        }
    }
}

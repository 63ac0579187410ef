// SPDX-License-Identifier: Apache-2.0
// dynamic_step.h: a convolution or a FULLY_CONNECTED of float, whose weights were bytes, on bytes that are made of its inputs in every run
// ("dynamic range quantisation"): as three steps of chain.cl, which find the ranges of images, make bytes of them, and multiply; or as one
// that does this row by row.
// Maths    of each image, or of each row of a FULLY_CONNECTED: low = min(0, min x), high = max(0, max x), scale = (high - low) / 255,
//          zero = round(-low / scale), q = clamp(round(x / scale + zero), 0, 255), as XNNPACK does for such weights;
//          y[b,oy,ox,o] = act((sum over fy, fx, i of q[b,iy,ix,i] * w[o,fy,fx,i] - zero * sum of w[o]) * scale * scale_w[o] + bias[o] [+ residual])
//          images with a value that is no finite number give NaN
// Tensors  x, y, residual of float, dense; ranges float2 [batches, level_rows], lowest and highest of equal parts of an image;
//          level_rows 0: the step does all, and rows are [out_width, depth_in]
//          q uchar [batches, height, width, depth_in] with its padding, `zero`; bytes behind it may be read, not used
//          rows: bytes of at most ROWS_BYTES, or TILE_PIXELS rows, are in memory of the work-group's own (chain/dynamic.py: work_bytes)
//          weights char [ceil(depth_out / 16)][filter_height][ceil(filter_width * depth_in / 4)][16][4], missing ones 0
//          (packing.py: pack_rows_of_bytes); bias float, multipliers: sums of w int, shifts: scale_w float: [ceil(depth_out / 16) * 16]
// Defines  DOT4: 1 | 2 | 3, common/dot4.h, common/tile.h (required, before inclusion)
// Needs    dilation_width 1, or a filter one wide; taps * depth_in <= 65536
// Units    tasks of bytes: rows of the padded image; of products: rows of pixels, or tiles of TILE_PIXELS if there is only one row
// Exact    sums of products; what rounds is the making of bytes, one division and two fused multiply-adds

// What a byte is worth, and the byte of 0.
typedef struct {
    float scale;
    int zero;
} Levels;

static inline Levels levels_of(float2 range)
{
    const float scale = range.y / 255.0f - range.x / 255.0f;
    if (scale <= FLT_MIN) // as good as all 0
        return (Levels){1.0f, 0};
    if (!isfinite(scale))
        return (Levels){NAN, 0};
    return (Levels){scale, (int)rint(-range.x / scale)};
}

static inline Levels levels_of_image(global const float2 *ranges, int parts, int image)
{
    float2 range = 0.0f;
    for (int i = image * parts; i < (image + 1) * parts; ++i)
        range = (float2)(min(range.x, ranges[i].x), max(range.y, ranges[i].y));
    return levels_of(range);
}

static inline float2 range_of(global const float *x, int count)
{
    float16 low = 0.0f, high = 0.0f, wrong = 0.0f; // wrong: NaN where a value is no finite number
    for (int i = 0; i < count; i += 16) {
        const float16 value = load_lanes(x, i, min(16, count - i));
        low = value < low ? value : low;
        high = value > high ? value : high;
        wrong = fma(value, (float16)0.0f, wrong);
    }
    float lows[16], highs[16], wrongs[16];
    vstore16(low, 0, lows);
    vstore16(high, 0, highs);
    vstore16(wrong, 0, wrongs);
    float2 range = 0.0f;
    for (int i = 0; i < 16; ++i)
        range = wrongs[i] == 0.0f ? (float2)(min(range.x, lows[i]), max(range.y, highs[i])) : (float2)(-INFINITY, INFINITY);
    return range;
}

static void find_ranges(const Step *s, Part part, global const float *src, global float2 *dst)
{
    const int length = s->depth_in, last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    for (int row = part.x0 * s->unit_pixels; row < last; ++row)
        dst[row] = range_of(src + (size_t)row * length, length);
}

typedef struct __attribute__((packed)) {
    uchar16 value;
} UnalignedBytes16;
typedef struct __attribute__((packed)) {
    int value;
} UnalignedQuad;

static inline void fill_bytes(global uchar *dst, int count, int value)
{
    int i = 0;
    for (; i + 16 <= count; i += 16)
        ((global UnalignedBytes16 *)(dst + i))->value = (uchar16)(uchar)value;
    for (; i < count; ++i)
        dst[i] = value;
}

// Adding it leaves an integer below 2^22, rounded, in the lowest bits of a float.
#define ROUNDING 12582912.0f

static inline void quantize_run(global uchar *dst, global const float *src, int count, Levels levels)
{
    const float inverse = 1.0f / levels.scale, zero = (float)levels.zero;
    for (int i = 0; i < count; i += 16) {
        const int lanes = min(16, count - i);
        const float16 scaled = fma(load_lanes(src, i, lanes), (float16)inverse, (float16)zero);
        const int16 value = as_int16(min(max(scaled, (float16)0.0f), (float16)255.0f) + (float16)ROUNDING) & (int16)255;
        const uchar16 bytes = WIDEN(value, uchar16);
        if (lanes == 16) {
            ((global UnalignedBytes16 *)(dst + i))->value = bytes;
        } else {
            uchar some[16];
            vstore16(bytes, 0, some);
            for (int k = 0; k < lanes; ++k)
                dst[i + k] = some[k];
        }
    }
}

static void make_bytes(const Step *s, Part part, global const float *src, global uchar *dst, global const float2 *ranges)
{
    const int depth = s->depth_in, length = s->out_width * depth;
    const int left = s->padding_left * depth, inside = min(s->width * depth, length - left);
    int known = -1;
    Levels levels = {1.0f, 0};
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
        quantize_run(line + left, src + ((size_t)b * s->height + y) * s->width * depth, inside, levels);
        fill_bytes(line + left + inside, length - left - inside, levels.zero);
    }
}

// Weights of so many quads of 16 channels stay in a core's first cache with what else it needs.
#define GROUP_QUADS 384
#define BYTE_VECTORS (DOT4_LANES / 8) // of 16 channels of a tile

static inline int16 spread_quad(global const uchar *x)
{
    return (int16)(((global const UnalignedQuad *)x)->value);
}

typedef struct {
    global const int16 *weights, *sums;
    global const float16 *bias, *scales;
    int quads;
} BytesOf;

static inline BytesOf bytes_of_step(const Step *s, global const uchar *constants)
{
    return (BytesOf){CONSTANT_AT(int16, s->weights), CONSTANT_AT(int16, s->multipliers), CONSTANT_AT(float16, s->bias),
                     CONSTANT_AT(float16, s->shifts), s->filter_height * ceil_divide(s->filter_width * s->depth_in, 4)};
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
    const int runs = s->filter_height, length = of->quads / runs, channels = s->depth_out - vector * 16;
    global const int16 *w0 = of->weights + (size_t)vector * of->quads, *w1 = w0 + (vectors > 1 ? of->quads : 0);
    int16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
    PIXELS sum0[p] = sum1[p] = (int16)0;
    for (int run = 0; run < runs; ++run) {
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
        x += run_step;
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
static inline void multiply_tiles_of_bytes(const Step *s, const BytesOf *of, global const uchar *x, long step, long run_step, int first, int end,
                                           const Levels *levels, global float *dst, global const float *residual, int rows, int first_pixel)
{
    for (int vector = first; vector < end; vector += BYTE_VECTORS) {
        const int offset = first_pixel * s->depth_out + vector * 16;
        if (BYTE_VECTORS > 1 && vector + 1 < end)
            multiply_tile_of_bytes(s, of, x, step, run_step, vector, levels, dst, residual, rows, offset, 2);
        else
            multiply_tile_of_bytes(s, of, x, step, run_step, vector, levels, dst, residual, rows, offset, 1);
    }
}

static void multiply_images(const Step *s, Part part, global const uchar *src, global float *dst, global const float *residual,
                            global const float2 *ranges, global const uchar *constants)
{
    const BytesOf of = bytes_of_step(s, constants);
    const int pixels = s->batches * s->out_height * s->out_width;
    const int begin = part.x0 * s->unit_pixels, end = min(part.x1 * s->unit_pixels, pixels);
    const int end_vector = min(2 * part.y1, ceil_divide(s->depth_out, 16)), group = max(2, GROUP_QUADS / of.quads / 2 * 2);
    const long step = (long)s->stride_width * s->depth_in, run_step = (long)s->dilation_height * s->width * s->depth_in;
    Levels levels[TILE_PIXELS];
    int known = -1;
    for (int vector = 2 * part.y0; vector < end_vector; vector += group) {
        int rows;
        for (int first = begin; first < end; first += rows) {
            const int row = first / s->out_width, x = first - row * s->out_width, b = row / s->out_height;
            const long y = (long)b * s->height + (row - b * s->out_height) * s->stride_height;
            rows = min(TILE_PIXELS, min(end - first, s->out_width - x));
            if (b != known) {
                const Levels own = levels_of_image(ranges, s->level_rows, b);
                PIXELS levels[p] = own;
                known = b;
            }
            multiply_tiles_of_bytes(s, &of, src + y * s->width * s->depth_in + x * step, step, run_step, vector,
                                    min(vector + group, end_vector), levels, dst, residual, rows, first);
        }
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

// So many bytes of rows are there at once, if these are more than TILE_PIXELS rows.
#define ROWS_BYTES 65536

static void multiply_rows(const Step *s, Part part, global const float *src, global float *dst, global const float *residual,
                          global const uchar *constants, global uchar *bytes)
{
    const BytesOf of = bytes_of_step(s, constants);
    const int depth = s->depth_in, most = max(1, ROWS_BYTES / (depth * TILE_PIXELS)) * TILE_PIXELS;
    const int begin = part.x0 * TILE_PIXELS, end = min(part.x1 * TILE_PIXELS, s->out_width);
    const int end_vector = min(2 * part.y1, ceil_divide(s->depth_out, 16)), group = max(2, GROUP_QUADS / of.quads / 2 * 2);
    global Levels *const levels = (global Levels *)bytes;
    bytes += most * sizeof(Levels);
    for (int first = begin; first < end; first += most) {
        const int count = min(most, end - first);
        for (int row = 0; row < count; ++row) {
            global const float *x = src + (size_t)(first + row) * depth;
            levels[row] = levels_of(range_of(x, depth));
            quantize_run(bytes + row * depth, x, depth, levels[row]);
        }
        if (s->out_width == 1) {
            int vector = 2 * part.y0;
            for (; vector + ONE_ROW <= end_vector; vector += ONE_ROW)
                multiply_row_of_bytes(s, &of, bytes, vector, levels[0], dst, residual, ONE_ROW);
            for (; vector < end_vector; ++vector)
                multiply_row_of_bytes(s, &of, bytes, vector, levels[0], dst, residual, 1);
            return;
        }
        for (int vector = 2 * part.y0; vector < end_vector; vector += group)
            for (int row = 0; row < count; row += TILE_PIXELS) {
                Levels own[TILE_PIXELS];
                PIXELS own[p] = levels[row + p];
                multiply_tiles_of_bytes(s, &of, bytes + row * depth, depth, 0, vector, min(vector + group, end_vector), own, dst, residual,
                                        min(TILE_PIXELS, count - row), first + row);
            }
    }
}

// SPDX-License-Identifier: Apache-2.0
// window.h: copying the input windows of output pixels side by side ("staging"), the first step of the packed convolutions.
// Defines  (all required, before inclusion) T, common/types.h, common/index.h;
//          STAGE_T, the staged type;
//          STAGED(src, i, zero), STAGED16(src, i, zero): element i, elements i..i+15 of src as staged;
//          STAGED_PADDING16(zero): what lies outside the image; STAGE16(stage, value16): stores sixteen, any alignment
// Order    k = (fy * filter_width + fx) * depth + i; what is staged of every row of a filter is followed by `gap` elements of anything,
//          which is 0 where a tile is not staged in one piece or dilation_width is not 1

typedef struct {
    int height, width, depth;
    int filter_height, filter_width;
    int stride_height, stride_width;
    int dilation_height, dilation_width;
    int padding_top, padding_left;
    int out_height, out_width;
    int elements;  // of the whole tensor
    int pointwise; // every pixel's window is the pixel itself
    int zero_point;
    int gap;
} InputView;

static inline InputView input_view(const Step *s)
{
    const int pointwise = s->filter_height * s->filter_width == 1 && s->stride_height == 1 && s->stride_width == 1 && s->padding_top == 0
                          && s->padding_left == 0 && s->out_width == s->width && s->out_height == s->height;
    const InputView view = {s->height, s->width, s->depth_in, s->filter_height, s->filter_width, s->stride_height, s->stride_width,
                            s->dilation_height, s->dilation_width, s->padding_top, s->padding_left, s->out_height, s->out_width,
                            s->batches * s->height * s->width * s->depth_in, pointwise, s->zero_in, 0};
    return view;
}

// stage[0..count) = src[offset..offset + count) as STAGED says; may write up to 15 more.
static inline void stage_run(STAGE_T *stage, global const T *src, int offset, int count, int elements, int zero_point)
{
    // Whole vectors may read past the run, not past the tensor.
    const int vectors = min(count, elements - offset - 15);
    int i = 0;
    for (; i < vectors; i += 16)
        STAGE16(stage + i, STAGED16(src, offset + i, zero_point));
    for (; i < count; ++i)
        stage[i] = STAGED(src, offset + i, zero_point);
}

static inline void stage_padding(STAGE_T *stage, int count, int zero_point)
{
    for (int i = 0; i < count; i += 16)
        STAGE16(stage + i, STAGED_PADDING16(zero_point));
}

// Products k0..k1 of one output pixel whose window starts at (iy, ix) of the image at element `image`.
// Taps that lie side by side in memory are copied as one run.
static inline void stage_window(STAGE_T *stage, global const T *src, const InputView *v, int image, int iy, int ix, int k0, int k1)
{
    const int run_taps = v->dilation_width == 1 ? v->filter_width : 1;
    const int run_length = run_taps * v->depth;
    if (iy >= 0 && iy + (v->filter_height - 1) * v->dilation_height < v->height && ix >= 0
        && ix + (v->filter_width - 1) * v->dilation_width < v->width && k0 == 0
        && k1 == v->filter_height * v->filter_width * v->depth) {
        int offset = image + (iy * v->width + ix) * v->depth;
        for (int fy = 0; fy < v->filter_height; ++fy, offset += v->dilation_height * v->width * v->depth)
            for (int fx = 0; fx < v->filter_width; fx += run_taps, stage += run_length + v->gap)
                stage_run(stage, src, offset + fx * v->dilation_width * v->depth, run_length, v->elements, v->zero_point);
        return;
    }
    int fy = 0, fx = 0;
    for (int start = 0; start < k1; start += run_length) {
        const int y = iy + fy * v->dilation_height, x = ix + fx * v->dilation_width;
        const int from = max(k0, start), to = min(k1, start + run_length);
        if (from < to) {
            // valid_from..valid_to: the part of the run that lies in the image
            const int in_rows = inside(y, v->height);
            const int valid_from = in_rows && x >= 0 ? from : clamp(in_rows ? start - x * v->depth : to, from, to);
            const int valid_to = in_rows && x + run_taps <= v->width ? to : clamp(start + (v->width - x) * v->depth, valid_from, to);
            if (valid_from > from)
                stage_padding(stage + from - k0, valid_from - from, v->zero_point);
            stage_run(stage + valid_from - k0, src, image + (y * v->width + x) * v->depth + valid_from - start, valid_to - valid_from,
                      v->elements, v->zero_point);
            if (valid_to < to)
                stage_padding(stage + valid_to - k0, to - valid_to, v->zero_point);
        }
        fx += run_taps;
        if (fx == v->filter_width) {
            fx = 0;
            ++fy;
        }
        stage += v->gap;
    }
}

// Whether the window that begins at (iy, ix) lies in the image, each row of taps being one vector at most; whole vectors then do not read
// past the tensor.
static inline int is_narrow(const InputView *v, int image, int iy, int ix)
{
    const int bottom = iy + (v->filter_height - 1) * v->dilation_height;
    return v->dilation_width == 1 && v->filter_width * v->depth <= 16 && iy >= 0 && bottom < v->height && ix >= 0
           && ix + v->filter_width <= v->width && image + (bottom * v->width + ix) * v->depth + 16 <= v->elements;
}

static inline void stage_narrow(STAGE_T *stage, global const T *src, const InputView *v, int offset)
{
    const int run_length = v->filter_width * v->depth;
    for (int fy = 0; fy < v->filter_height; ++fy, stage += run_length + v->gap, offset += v->dilation_height * v->width * v->depth)
        STAGE16(stage, STAGED16(src, offset, v->zero_point));
}

// The rows of the input that the windows of neighbouring output pixels read, the first of which begins at (iy, ix) of the image at element
// `image`: `columns` pixels of each row of the filter, `pitch` elements apart. Writes up to 15 elements more.
static inline void stage_rows(STAGE_T *stage, int pitch, global const T *src, const InputView *v, int image, int iy, int ix, int columns)
{
    const int left = clamp(-ix, 0, columns), right = clamp(v->width - ix, left, columns);
    for (int fy = 0; fy < v->filter_height; ++fy, iy += v->dilation_height, stage += pitch) {
        const int first = inside(iy, v->height) ? left : columns, end = inside(iy, v->height) ? right : columns;
        stage_padding(stage, first * v->depth, v->zero_point);
        stage_run(stage + first * v->depth, src, image + (iy * v->width + ix + first) * v->depth, (end - first) * v->depth, v->elements,
                  v->zero_point);
        stage_padding(stage + end * v->depth, (columns - end) * v->depth, v->zero_point);
    }
}

// Products k0..k1 of `rows` output pixels from first_pixel on (row-major over b, oy, ox), each `pitch` elements after the one before.
static inline void stage_tile(STAGE_T *stage, int pitch, global const T *src, const InputView *v, int first_pixel, int rows, int k0, int k1)
{
    if (v->pointwise) {
        for (int p = 0; p < rows; ++p)
            stage_run(stage + p * pitch, src, (first_pixel + p) * v->depth + k0, k1 - k0, v->elements, v->zero_point);
        return;
    }
    const int out_height = v->out_height, out_width = v->out_width;
    int ox = first_pixel % out_width, oy = first_pixel / out_width;
    int b = oy / out_height;
    oy -= b * out_height;
    const int is_whole = k0 == 0 && k1 == v->filter_height * v->filter_width * v->depth;
    for (int p = 0; p < rows; ++p) {
        const int image = b * v->height * v->width * v->depth;
        const int iy = oy * v->stride_height - v->padding_top, ix = ox * v->stride_width - v->padding_left;
        if (is_whole && is_narrow(v, image, iy, ix))
            stage_narrow(stage + p * pitch, src, v, image + (iy * v->width + ix) * v->depth);
        else
            stage_window(stage + p * pitch, src, v, image, iy, ix, k0, k1);
        if (++ox == out_width) {
            ox = 0;
            if (++oy == out_height) {
                oy = 0;
                ++b;
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// greatest_step.h: MAX_POOL_2D, or REDUCE_MAX of rows, as a step of chain.cl.
// Maths    y[b,oy,ox,c] = act(max over fy, fx of x[b,iy,ix,c]), iy and ix as convolve.h; positions outside the image do not count, NaN
//          is the greatest
// Tensors  src [batches, height, width, depth_in], dst [batches, out_height, out_width, depth_in] of T, dense
// Needs    every window holds a pixel; common/greatest.h, common/kept_lanes.h
// Exact    yes

// Of a pixel with fewer than sixteen elements.
static inline void greatest_few(global const T *from, int rows, int pixels, int depth, int line, KEPT_T16 low, KEPT_T16 high,
                                global T *to)
{
    KEPT_T16 found = (KEPT_T16)LOWEST;
    int16 sizes = (int16)0;
    for (int row = 0; row < rows; ++row)
        for (int x = 0; x < pixels; ++x) {
            const KEPT_T16 value = load_kept(from, row * line + x * depth, depth);
            found = value > found ? value : found;
            NOTE_SIZES(sizes, value);
        }
    const KEPT_T16 y = OR_NAN(sizes, found);
    store_kept(to, 0, CLAMPED(y, low, high), depth);
}

static void greatest(const Step *s, Part part, global const T *src, global T *dst)
{
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width;
    const int first = part.y0 * 16, last = min(part.y1 * 16, depth), line = width * depth;
    const KEPT_T16 low = (KEPT_T16)s->low, high = (KEPT_T16)s->high;
    for (int row = part.x0; row < part.x1; ++row) {
        const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;
        const int y0 = max(top, 0), rows = min(top + s->filter_height, height) - y0;
        for (int ox = 0; ox < out_width; ++ox) {
            const int left = ox * s->stride_width - s->padding_left;
            const int x0 = max(left, 0), pixels = min(left + s->filter_width, width) - x0;
            global const T *from = src + nhwc_offset(b, y0, x0, height, width, depth);
            global T *to = dst + (row * out_width + ox) * depth;
            if (depth < 16)
                greatest_few(from, rows, pixels, depth, line, low, high, to);
            else
                greatest_of_window(from, rows, pixels, depth, line, first, last, low, high, to);
        }
    }
}

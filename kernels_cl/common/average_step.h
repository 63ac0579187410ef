// SPDX-License-Identifier: Apache-2.0
// average_step.h: AVERAGE_POOL_2D as a step of chain.cl.
// Maths    y[b,oy,ox,c] = act(mean over fy, fx of x[b,iy,ix,c]), iy and ix as convolve.h; positions outside the image do not count;
//          quantised: means of the stored values, rounded half away from 0
// Tensors  src [batches, height, width, depth_in], dst [batches, out_height, out_width, depth_in] of T, dense
// Needs    every window holds a pixel; quantised: at most 2^23 of them; common/average.h
// Exact    quantised: yes; float: sums of row sums

// Of a pixel with fewer than sixteen elements.
static inline void average_few(global const T *from, int rows, int pixels, int depth, int line, COMPUTE_T16 low, COMPUTE_T16 high,
                               global T *to)
{
    COMPUTE_T16 sum = 0;
    for (int row = 0; row < rows; ++row) {
        COMPUTE_T16 of_row = 0;
        for (int x = 0; x < pixels; ++x)
            of_row += load_lanes(from, row * line + x * depth, depth);
        sum += of_row;
    }
    const COMPUTE_T16 y = MEAN_OF16(sum, rows * pixels);
    store_lanes(to, 0, y < low ? low : y > high ? high : y, depth);
}

static void average(const Step *s, Part part, global const T *src, global T *dst)
{
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width;
    const int first = part.y0 * 16, last = min(part.y1 * 16, depth), line = width * depth;
    const COMPUTE_T16 low = s->low, high = s->high;
    for (int row = part.x0; row < part.x1; ++row) {
        const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;
        const int y0 = max(top, 0), rows = min(top + s->filter_height, height) - y0;
        for (int ox = 0; ox < out_width; ++ox) {
            const int left = ox * s->stride_width - s->padding_left;
            const int x0 = max(left, 0), pixels = min(left + s->filter_width, width) - x0;
            global const T *from = src + nhwc_offset(b, y0, x0, height, width, depth);
            global T *to = dst + (row * out_width + ox) * depth;
            if (depth < 16)
                average_few(from, rows, pixels, depth, line, low, high, to);
            else
                average_of_window(from, rows, pixels, depth, line, first, last, low, high, to);
        }
    }
}

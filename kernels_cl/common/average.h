// SPDX-License-Identifier: Apache-2.0
// average.h: AVERAGE_POOL_2D as a step of chain.cl.
// Maths    y[b,oy,ox,c] = act(mean over fy, fx of x[b,iy,ix,c]), iy and ix as convolve.h; positions outside the image do not count;
//          quantised: means of the stored values, rounded half away from 0
// Tensors  src [batches, height, width, depth_in], dst [batches, out_height, out_width, depth_in] of T, dense
// Needs    every window holds a pixel; quantised: at most 2^23 of them
// Exact    quantised: yes; float: sums of row sums

static void average(const Step *s, Part part, global const T *src, global T *dst)
{
    const int height = s->height, width = s->width, depth = s->depth_in, lanes = min(depth, 16), out_height = s->out_height, out_width = s->out_width;
    for (int row = part.x0; row < part.x1; ++row) {
        const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;
        const int y0 = max(top, 0), y1 = min(top + s->filter_height, height);
        for (int ox = 0; ox < out_width; ++ox) {
            const int left = ox * s->stride_width - s->padding_left;
            const int x0 = max(left, 0), x1 = min(left + s->filter_width, width);
            for (int block = part.y0; block < part.y1; ++block) {
                const int channel = min(block * 16, depth - lanes);
                COMPUTE_T16 sum = 0;
                for (int y = y0; y < y1; ++y) {
                    COMPUTE_T16 line = 0;
                    for (int x = x0; x < x1; ++x)
                        line += load_lanes(src, nhwc_offset(b, y, x, height, width, depth) + channel, lanes);
                    sum += line;
                }
                const COMPUTE_T16 y = MEAN_OF16(sum, (y1 - y0) * (x1 - x0)), low = s->low, high = s->high;
                store_lanes(dst, (row * out_width + ox) * depth + channel, y < low ? low : y > high ? high : y, lanes);
            }
        }
    }
}

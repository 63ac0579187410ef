// SPDX-License-Identifier: Apache-2.0
// greatest_step.h: MAX_POOL_2D, or REDUCE_MAX of rows, as a step of chain.cl.
// Maths    y[b,oy,ox,c] = act(max over fy, fx of x[b,iy,ix,c]), iy and ix as convolve.h; positions outside the image do not count, NaN
//          is the greatest
// Tensors  src [batches, height, width, depth_in], dst [batches, out_height, out_width, depth_in] of T, dense
// Needs    every window holds a pixel
// Exact    yes

#if T_IS_FLOAT
#define LOWEST (-INFINITY)
#define NO_NAN 0x7f800000 // the greatest bits of a number's size that is one
#else
#define LOWEST (T_IS_SIGNED ? -128 : 0)
#endif

static void greatest(const Step *s, Part part, global const T *src, global T *dst)
{
    const int height = s->height, width = s->width, depth = s->depth_in, lanes = min(depth, 16), out_height = s->out_height, out_width = s->out_width;
    const KEPT_T16 low = (KEPT_T16)s->low, high = (KEPT_T16)s->high;
    for (int row = part.x0; row < part.x1; ++row) {
        const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;
        const int y0 = max(top, 0), y1 = min(top + s->filter_height, height);
        for (int ox = 0; ox < out_width; ++ox) {
            const int left = ox * s->stride_width - s->padding_left;
            const int x0 = max(left, 0), x1 = min(left + s->filter_width, width);
            for (int block = part.y0; block < part.y1; ++block) {
                const int channel = min(block * 16, depth - lanes);
                KEPT_T16 found = (KEPT_T16)LOWEST;
#if T_IS_FLOAT
                int16 sizes = (int16)0; // faster than to ask of each value whether it is a number
#endif
                for (int y = y0; y < y1; ++y)
                    for (int x = x0; x < x1; ++x) {
                        const KEPT_T16 value = load_kept(src, nhwc_offset(b, y, x, height, width, depth) + channel, lanes);
                        found = value > found ? value : found;
#if T_IS_FLOAT
                        sizes = max(sizes, as_int16(value) & (int16)INT_MAX);
#endif
                    }
#if T_IS_FLOAT
                found = sizes > (int16)NO_NAN ? (float16)NAN : found;
#endif
                found = found < low ? low : found;
                store_kept(dst, (row * out_width + ox) * depth + channel, found > high ? high : found, lanes);
            }
        }
    }
}

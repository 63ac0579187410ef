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

DEFINE_STEP_OF_WINDOWS(greatest, greatest_few, greatest_of_window, KEPT_T16)

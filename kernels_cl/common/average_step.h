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

DEFINE_STEP_OF_WINDOWS(average, average_few, average_of_window, COMPUTE_T16)

// SPDX-License-Identifier: Apache-2.0
// average.h: the mean of what lies in a window.
// Maths    y[c] = min(max(mean of x[r,p,c] over r < rows and p < pixels, low), high), first <= c < last; 8-bit means of the stored values,
//          rounded half away from 0
// Tensors  from: the window's first pixel; pixels lie `depth` elements apart, rows `line`; to: y; both of T
// Gives    average_of_window
// Needs    common/types.h, common/mean.h; depth >= 16, and first a multiple of that; a window that holds a pixel, quantised at most 2^23 of
//          them. Where depth is none, up to fifteen elements before `first` are written, too, as they should be
// Exact    quantised: yes; float: sums of row sums

#define AVERAGE(NAME, VECTORS_AT_ONCE)                                                                                          \
    static inline void NAME(global const T *from, int rows, int pixels, int depth, int line, COMPUTE_T16 low, COMPUTE_T16 high, \
        global T *to)                                                                                                           \
    {                                                                                                                           \
        COMPUTE_T16 sum[VECTORS_AT_ONCE];                                                                                       \
        _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) sum[i] = (COMPUTE_T16)0;                                    \
        for (int y = 0; y < rows; ++y, from += line) {                                                                          \
            COMPUTE_T16 of_row[VECTORS_AT_ONCE];                                                                                \
            _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) of_row[i] = (COMPUTE_T16)0;                             \
            global const T *pixel = from;                                                                                       \
            for (int x = 0; x < pixels; ++x, pixel += depth)                                                                    \
                _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) of_row[i] += LOAD16(pixel, 16 * i);                 \
            _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) sum[i] += of_row[i];                                    \
        }                                                                                                                       \
        _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) {                                                           \
            const COMPUTE_T16 y = MEAN_OF16(sum[i], rows * pixels);                                                             \
            STORE16(to, 16 * i, y < low ? low : y > high ? high : y);                                                           \
        }                                                                                                                       \
    }
AVERAGE(average16, 1)
AVERAGE(average64, 4)

static inline void average_of_window(global const T *from, int rows, int pixels, int depth, int line, int first, int last, COMPUTE_T16 low,
                                     COMPUTE_T16 high, global T *to)
{
    int c = first;
    for (; c + 64 <= last; c += 64)
        average64(from + c, rows, pixels, depth, line, low, high, to + c);
    for (; c < last; c += 16) {
        const int at = min(c, depth - 16);
        average16(from + at, rows, pixels, depth, line, low, high, to + at);
    }
}

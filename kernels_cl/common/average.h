// SPDX-License-Identifier: Apache-2.0
// average.h: the mean of what lies in a window.
// Maths    y[c] = min(max(mean of x[r,p,c] over r < rows and p < pixels, low), high), first <= c < last; 8-bit means of the stored values,
//          rounded half away from 0
// Tensors  from: the window's first pixel; pixels lie `depth` elements apart, rows `line`; to: y; both of T
// Gives    average_of_window
//          AVERAGE(NAME, VECTORS_AT_ONCE, TERM, RESULT16): function `NAME`, RESULT16(sums of TERM(x), how many) in place of the mean, within bounds
// Needs    common/types.h, common/mean.h, common/pooled.h and what that needs; a window that holds a pixel, quantised at most 2^23 of them
// Exact    quantised: yes; float: sums of row sums

#define ITSELF(value) (value)

#define AVERAGE(NAME, VECTORS_AT_ONCE, TERM, RESULT16)                                                                          \
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
                _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) of_row[i] += TERM(LOAD16(pixel, 16 * i));           \
            _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) sum[i] += of_row[i];                                    \
        }                                                                                                                       \
        _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) {                                                           \
            const COMPUTE_T16 y = RESULT16(sum[i], rows * pixels);                                                              \
            STORE16(to, 16 * i, y < low ? low : y > high ? high : y);                                                           \
        }                                                                                                                       \
    }
AVERAGE(average16, 1, ITSELF, MEAN_OF16)
AVERAGE(average64, 4, ITSELF, MEAN_OF16)
DEFINE_OF_WINDOW(average_of_window, average16, average64, COMPUTE_T16)

// SPDX-License-Identifier: Apache-2.0
// greatest.h: the greatest of what lies in a window.
// Maths    y[c] = min(max(x[r,p,c] over r < rows and p < pixels, low), high), first <= c < last; NaN is the greatest
// Tensors  from: the window's first pixel; pixels lie `depth` elements apart, rows `line`; to: y; both of T
// Gives    greatest_of_window; LOWEST, not above any element; NO_NAN, NOTE_SIZES, OR_NAN: whether there was a NaN, and the result then
// Needs    common/types.h, common/kept.h, common/pooled.h and what that needs; a window that holds a pixel
// Exact    yes

#if T_IS_FLOAT
#define LOWEST (-INFINITY)
#define NO_NAN 0x7f800000 // the greatest bits of a number's size that is one
#define NOTE_SIZES(sizes, value) sizes = max(sizes, as_int16(value) & (int16)INT_MAX) // faster than to ask of each whether it is a number
#define OR_NAN(sizes, value) ((sizes) > (int16)NO_NAN ? (float16)NAN : (value))
#else
#define LOWEST (T_IS_SIGNED ? -128 : 0)
#define NOTE_SIZES(sizes, value)
#define OR_NAN(sizes, value) (value)
#endif
#define CLAMPED(value, low, high) ((value) < (low) ? (low) : (value) > (high) ? (high) : (value))

#define GREATEST(NAME, VECTORS_AT_ONCE)                                                                                         \
    static inline void NAME(global const T *from, int rows, int pixels, int depth, int line, KEPT_T16 low, KEPT_T16 high,       \
        global T *to)                                                                                                           \
    {                                                                                                                           \
        KEPT_T16 found[VECTORS_AT_ONCE];                                                                                        \
        int16 sizes[VECTORS_AT_ONCE];                                                                                           \
        _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) {                                                           \
            found[i] = (KEPT_T16)LOWEST;                                                                                        \
            sizes[i] = (int16)0;                                                                                                \
        }                                                                                                                       \
        for (int y = 0; y < rows; ++y, from += line) {                                                                          \
            global const T *pixel = from;                                                                                       \
            for (int x = 0; x < pixels; ++x, pixel += depth)                                                                    \
                _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) {                                                   \
                    const KEPT_T16 value = LOAD_KEPT16(pixel, 16 * i);                                                          \
                    found[i] = value > found[i] ? value : found[i];                                                             \
                    NOTE_SIZES(sizes[i], value);                                                                                \
                }                                                                                                               \
        }                                                                                                                       \
        _Pragma("unroll") for (int i = 0; i < VECTORS_AT_ONCE; ++i) {                                                           \
            const KEPT_T16 y = OR_NAN(sizes[i], found[i]);                                                                      \
            STORE_KEPT16(to, 16 * i, CLAMPED(y, low, high));                                                                    \
        }                                                                                                                       \
    }
GREATEST(greatest16, 1)
GREATEST(greatest64, 4)
DEFINE_OF_WINDOW(greatest_of_window, greatest16, greatest64, KEPT_T16)

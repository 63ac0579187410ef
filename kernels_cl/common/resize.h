// SPDX-License-Identifier: Apache-2.0
// resize.h: a pixel of a resized image.
// Maths    bilinear, v, u: how far between the rows, the columns, in float and in this order, no contraction:
//          result = tl (1 - v) (1 - u) + bl v (1 - u) + tr (1 - v) u + br v u
//          8-bit: trunc(result + 0.5) of unsigned codes (signed ones + 128)
// Tensors  src, dst of T; top_left, ...: where the pixels of src begin, in elements; depth elements each
// Exact    8-bit: yes; float: as float32 without contraction
// Needs    common/types.h

#if T_IS_FLOAT
#define TO_REAL(v) (v)
#define TO_REAL16(v) (v)
#define FROM_REAL(v) (v)
#define FROM_REAL16(v) (v)
#else
#define UNSIGNED_OFFSET (TYPE_NUMBER == TYPE_NUMBER_char ? 128 : 0)
#define TO_REAL(v) (float)((v) + UNSIGNED_OFFSET)
#define TO_REAL16(v) WIDEN((v) + UNSIGNED_OFFSET, float16)
#define FROM_REAL(v) ((int)((v) + 0.5f) - UNSIGNED_OFFSET)
#define FROM_REAL16(v) (WIDEN((v) + 0.5f, int16) - UNSIGNED_OFFSET)
#endif

#define BLEND(V, SUFFIX)                                                  \
    static inline V blend##SUFFIX(V tl, V tr, V bl, V br, float v, float u) \
    {                                                                     \
        _Pragma("OPENCL FP_CONTRACT OFF")                                 \
        V result = tl * (1.0f - v) * (1.0f - u);                          \
        result += bl * v * (1.0f - u);                                    \
        result += tr * (1.0f - v) * u;                                    \
        result += br * v * u;                                             \
        return result;                                                    \
    }
BLEND(float, )
BLEND(float16, 16)

static inline void blend_pixel(global const T *src, int top_left, int top_right, int bottom_left, int bottom_right, float v, float u,
    int depth, global T *dst)
{
    if (depth < 16)
        for (int c = 0; c < depth; ++c)
            STORE(dst, c, FROM_REAL(blend(TO_REAL(LOAD(src, top_left + c)), TO_REAL(LOAD(src, top_right + c)),
                TO_REAL(LOAD(src, bottom_left + c)), TO_REAL(LOAD(src, bottom_right + c)), v, u)));
    else
        for (int first = 0; first < depth; first += 16) {
            const int c = min(first, depth - 16);
            STORE16(dst, c, FROM_REAL16(blend16(TO_REAL16(LOAD16(src, top_left + c)), TO_REAL16(LOAD16(src, top_right + c)),
                TO_REAL16(LOAD16(src, bottom_left + c)), TO_REAL16(LOAD16(src, bottom_right + c)), v, u)));
        }
}

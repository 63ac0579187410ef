// SPDX-License-Identifier: Apache-2.0
// resize.h: pixels of a resized image.
// Maths    bilinear, v, u: how far between the rows, the columns, in float and in this order, no contraction:
//          result = tl (1 - v) (1 - u) + bl v (1 - u) + tr (1 - v) u + br v u
//          8-bit: trunc(result + 0.5) of unsigned codes (signed ones + 128)
// Tensors  src, dst of T
// Gives    blend: one element; blend_row: `count` pixels of a row, of `depth` elements each, where `room` elements from dst on may be
//          written, and be anything behind the pixels; src has `elements`, its rows above and below begin at top and bottom;
//          left, right, across of each pixel: its columns, and u
// Exact    8-bit: yes; float: as float32 without contraction
// Needs    common/types.h

#if T_IS_FLOAT
#define TO_REAL(v) (v)
#define FROM_REAL(v) (v)
#else
#define UNSIGNED_OFFSET (TYPE_NUMBER == TYPE_NUMBER_char ? 128 : 0)
#define TO_REAL(v) (float)((v) + UNSIGNED_OFFSET)
#define FROM_REAL(v) ((int)((v) + 0.5f) - UNSIGNED_OFFSET)
#endif

// Of corners that are multiplied by how near their rows are.
#define BLEND(V, SUFFIX)                                      \
    static inline V blend##SUFFIX(V tl, V tr, V bl, V br, float u) \
    {                                                         \
        _Pragma("OPENCL FP_CONTRACT OFF")                     \
        V result = tl * (1.0f - u);                           \
        result += bl * (1.0f - u);                            \
        result += tr * u;                                     \
        result += br * u;                                     \
        return result;                                        \
    }
BLEND(float, )

// N neighbours: reals of those in src, and the inverse.
#if T_IS_HALF
#define READ_REALS(N, p) LOAD16(p, 0)
#define WRITE_REALS(N, p, v) STORE16(p, 0, v)
#else
#define NEIGHBOURS_OF_T(N)                                \
    typedef struct __attribute__((packed)) {              \
        JOIN(T, N) value;                                 \
    } Neighbours##N;
NEIGHBOURS_OF_T(4)
NEIGHBOURS_OF_T(8)
NEIGHBOURS_OF_T(16)
#if T_IS_FLOAT
#define READ_REALS(N, p) ((global const Neighbours##N *)(p))->value
#define WRITE_REALS(N, p, v) ((global Neighbours##N *)(p))->value = (v)
#else
#define READ_REALS(N, p) WIDEN(WIDEN(((global const Neighbours##N *)(p))->value, int##N) + UNSIGNED_OFFSET, float##N)
#define WRITE_REALS(N, p, v) ((global Neighbours##N *)(p))->value = BYTES_OF(N, WIDEN((v) + 0.5f, uchar##N) ^ (uchar##N)UNSIGNED_OFFSET)
#define BYTES_OF(N, codes) JOIN(as_, JOIN(T, N))(codes)
#endif
#endif

#if !T_IS_HALF
BLEND(float4, 4)
BLEND(float8, 8)
#endif
BLEND(float16, 16)

// The corners of N neighbours, l and r elements from the beginnings of the rows.
#define CORNERS(N)                                                       \
    const float##N tl = READ_REALS(N, src + (top + l)) * (1.0f - v);     \
    const float##N tr = READ_REALS(N, src + (top + r)) * (1.0f - v);     \
    const float##N bl = READ_REALS(N, src + (bottom + l)) * v;           \
    const float##N br = READ_REALS(N, src + (bottom + r)) * v;

// As many of the pixels as fit whole vectors, which reach beyond a pixel of fewer elements: into others, not beyond the end.
#define BLEND_NARROW(N)                                                                        \
    for (const int last = min(count, (room - N) / depth + 1); room >= N && x < last; ++x) {    \
        const int l = left[x] * depth, r = right[x] * depth;                                   \
        if (max(top, bottom) + r + N > elements)                                               \
            break;                                                                             \
        CORNERS(N)                                                                             \
        WRITE_REALS(N, dst + x * depth, blend##N(tl, tr, bl, br, across[x]));                  \
    }

static inline void blend_row(global const T *src, int elements, int top, int bottom, float v, global const int *left,
    global const int *right, global const float *across, int depth, global T *dst, int count, int room)
{
    if (depth >= 16) {
        for (int first = 0; first < depth; first += 16) {
            const int c = min(first, depth - 16);
            for (int x = 0; x < count;) { // neighbours share their corners where the image grows
                const int from_left = left[x], from_right = right[x], l = from_left * depth + c, r = from_right * depth + c;
                CORNERS(16)
                do
                    WRITE_REALS(16, dst + (x * depth + c), blend16(tl, tr, bl, br, across[x]));
                while (++x < count && left[x] == from_left && right[x] == from_right);
            }
        }
        return;
    }
    int x = 0;
#if T_IS_HALF
    BLEND_NARROW(16)
#else
    if (depth > 8)
        BLEND_NARROW(16)
    else if (depth > 4)
        BLEND_NARROW(8)
    else
        BLEND_NARROW(4)
#endif
    for (; x < count; ++x)
        for (int c = 0; c < depth; ++c) {
            const int l = left[x] * depth + c, r = right[x] * depth + c;
            const float tl = TO_REAL(LOAD(src, top + l)) * (1.0f - v), tr = TO_REAL(LOAD(src, top + r)) * (1.0f - v);
            const float bl = TO_REAL(LOAD(src, bottom + l)) * v, br = TO_REAL(LOAD(src, bottom + r)) * v;
            STORE(dst, x * depth + c, FROM_REAL(blend(tl, tr, bl, br, across[x])));
        }
}

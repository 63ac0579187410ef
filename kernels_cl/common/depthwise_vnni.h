// SPDX-License-Identifier: Apache-2.0
// depthwise_vnni.h: depthwise.h for bytes and filters of 3 x 3 by the instruction vpdpbusd: the three rows of a column are one operand.
// Maths    as depthwise.h, quantised. With x' = x for unsigned inputs, x + 128 for signed ones, zero_in' alike:
//          sum (x - zero_in) * (w - zero_w) = sum x' * (w - zero_w) - zero_in' * sum (w - zero_w); x' = zero_in' outside the image
// Tensors  as depthwise.h, but
//          weights char, packed: [ceil(depth / 16)][column 3][16][row 4], zero_w subtracted, the fourth row 0
//          (packing.py: pack_depthwise_weights_vnni)
//          bias: less zero_in' * sum (w - zero_w) (packing.py: fold_input_zero_point)
// Needs    what is_depthwise3 of depthwise.h says, filter_height 3, every w - zero_w in -128..127
// Exact    yes

// Three rows of one column, a byte each, on top of each other. keep, outside: bytes of rows in the image, x' of the others.
static inline int16 stack_rows(global const T *top, global const T *middle, global const T *bottom, long offset, int keep, int outside)
{
    const int16 a = WIDEN(STAGED16(top, offset, 0), int16), b = WIDEN(STAGED16(middle, offset, 0), int16);
    const int16 c = WIDEN(STAGED16(bottom, offset, 0), int16);
    return ((a | (b << 8) | (c << 16)) & keep) | outside;
}

// Adds the products of DEPTHWISE_PIXELS neighbours whose first window begins at column x.
#define DEFINE_ADD_WINDOWS3(STRIDE)                                                                                                \
    static inline void add_windows3_stride##STRIDE(int16 *sum, global const T *top, global const T *middle, global const T *bottom, \
                                                   long depth, global const int16 *w, int keep, int outside, int all_outside,      \
                                                   int x, int width)                                                               \
    {                                                                                                                              \
        int16 column[(DEPTHWISE_PIXELS - 1) * STRIDE + 3];                                                                         \
        if (x >= 0 && x + (DEPTHWISE_PIXELS - 1) * STRIDE + 3 <= width) {                                                          \
            _Pragma("unroll") for (int k = 0; k < (DEPTHWISE_PIXELS - 1) * STRIDE + 3; ++k)                                        \
                column[k] = stack_rows(top, middle, bottom, k * depth, keep, outside);                                             \
        } else {                                                                                                                   \
            _Pragma("unroll") for (int k = 0; k < (DEPTHWISE_PIXELS - 1) * STRIDE + 3; ++k)                                        \
            {                                                                                                                      \
                column[k] = (int16)all_outside;                                                                                    \
                if (inside(x + k, width))                                                                                          \
                    column[k] = stack_rows(top, middle, bottom, k * depth, keep, outside);                                         \
            }                                                                                                                      \
        }                                                                                                                          \
        NEIGHBOURS sum[p] = dot4(sum[p], column[p * STRIDE], w[0]);                                                                \
        NEIGHBOURS sum[p] = dot4(sum[p], column[p * STRIDE + 1], w[1]);                                                            \
        NEIGHBOURS sum[p] = dot4(sum[p], column[p * STRIDE + 2], w[2]);                                                            \
    }
DEFINE_ADD_WINDOWS3(1)
DEFINE_ADD_WINDOWS3(2)

static void depthwise3_vnni(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width;
    const int stride_width = s->stride_width, all_outside = 0x010101 * ((s->zero_in ^ TO_UNSIGNED) & 0xff);
    for (int tile = 0; tile < out_width; tile += DEPTHWISE_PIXELS) {
        const int ox = max(0, min(tile, out_width - DEPTHWISE_PIXELS)), left = ox * stride_width - s->padding_left;
        for (int block = part.y0; block < part.y1; ++block) {
            const int channel = max(0, min(block * 16, depth - 16));
            global const int16 *filter = CONSTANT_AT(int16, s->weights) + (size_t)block * 3;
            const int16 start = CONSTANT_AT(int16, s->bias)[block];
            const int16 multiplier = CONSTANT_AT(int16, s->multipliers)[block], shift = CONSTANT_AT(int16, s->shifts)[block];
            const int16 rounding = CONSTANT_AT(int16, s->roundings)[block];
            for (int row = part.x0; row < part.x1; ++row) {
                const int b = row / out_height, y = (row - b * out_height) * s->stride_height - s->padding_top;
                global const T *rows[3];
                int keep = 0;
                for (int fy = 0; fy < 3; ++fy) {
                    rows[fy] = src + (long)nhwc_offset(b, clamp(y + fy, 0, height - 1), left, height, width, depth) + channel;
                    keep |= inside(y + fy, height) ? 0xff << 8 * fy : 0;
                }
                int16 sum[DEPTHWISE_PIXELS];
                NEIGHBOURS sum[p] = start;
                if (stride_width == 1)
                    add_windows3_stride1(sum, rows[0], rows[1], rows[2], depth, filter, keep, all_outside & ~keep, all_outside, left,
                                         width);
                else
                    add_windows3_stride2(sum, rows[0], rows[1], rows[2], depth, filter, keep, all_outside & ~keep, all_outside, left,
                                         width);
                global T *to = dst + (long)(row * out_width + ox) * depth + channel;
                NEIGHBOURS {
                    STORE16(to, 0, requantize16(s, sum[p], multiplier, shift, rounding));
                    to += depth;
                }
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// pooled.h: what windows of MAX_POOL_2D and AVERAGE_POOL_2D have in common: greatest.h, average.h and the steps of chain.cl by these.
// Gives    DEFINE_OF_WINDOW(NAME, OF16, OF64, V): function `NAME`, of channels first..last - 1 of a window by OF64 and OF16 (sixty-four and
//          sixteen channels at once): from, its first pixel; pixels lie `depth` elements apart, rows `line`; low, high of V: bounds
//          DEFINE_STEP_OF_WINDOWS(NAME, FEW, OF_WINDOW, V): function `NAME`, a step of chain.cl by OF_WINDOW, or FEW for pixels of fewer than
//          sixteen channels
// Needs    common/types.h; of OF_WINDOW: depth >= 16, and first a multiple of that. Where depth is none, up to fifteen elements before
//          `first` are written, too, as they should be; of the step: common/chain_step.h, common/index.h, every window holds a pixel

#define DEFINE_OF_WINDOW(NAME, OF16, OF64, V)                                                                                   \
    static inline void NAME(global const T *from, int rows, int pixels, int depth, int line, int first, int last, V low, V high, \
        global T *to)                                                                                                           \
    {                                                                                                                           \
        int c = first;                                                                                                          \
        for (; c + 64 <= last; c += 64)                                                                                         \
            OF64(from + c, rows, pixels, depth, line, low, high, to + c);                                                       \
        for (; c < last; c += 16) {                                                                                             \
            const int at = min(c, depth - 16);                                                                                  \
            OF16(from + at, rows, pixels, depth, line, low, high, to + at);                                                     \
        }                                                                                                                       \
    }

#define DEFINE_STEP_OF_WINDOWS(NAME, FEW, OF_WINDOW, V)                                                                         \
    static void NAME(const Step *s, Part part, global const T *src, global T *dst)                                              \
    {                                                                                                                           \
        const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height, out_width = s->out_width; \
        const int first = part.y0 * 16, last = min(part.y1 * 16, depth), line = width * depth;                                  \
        const V low = (V)s->low, high = (V)s->high;                                                                             \
        for (int row = part.x0; row < part.x1; ++row) {                                                                         \
            const int b = row / out_height, top = (row - b * out_height) * s->stride_height - s->padding_top;                   \
            const int y0 = max(top, 0), rows = min(top + s->filter_height, height) - y0;                                        \
            for (int ox = 0; ox < out_width; ++ox) {                                                                            \
                const int left = ox * s->stride_width - s->padding_left;                                                        \
                const int x0 = max(left, 0), pixels = min(left + s->filter_width, width) - x0;                                  \
                global const T *from = src + nhwc_offset(b, y0, x0, height, width, depth);                                      \
                global T *to = dst + (row * out_width + ox) * depth;                                                            \
                if (depth < 16)                                                                                                 \
                    FEW(from, rows, pixels, depth, line, low, high, to);                                                        \
                else                                                                                                            \
                    OF_WINDOW(from, rows, pixels, depth, line, first, last, low, high, to);                                     \
            }                                                                                                                   \
        }                                                                                                                       \
    }

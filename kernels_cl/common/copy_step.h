// SPDX-License-Identifier: Apache-2.0
// copy_step.h: rows of a tensor to other places, and filling a tensor, as steps of chain.cl.
// Maths    COPY: row (i, j, k, l), counted over sizes, goes from src + from + i * from_strides[0] + ... to dst + to + i * to_strides[0] + ...
//          FILL: dst = low
// Tensors  src, dst of T; rows batches * out_height * out_width, of depth_out elements, those of FILL dense; weights: Block, of COPY
// Units    places and strides in elements
// Exact    yes

typedef struct {
    int from, to;
    int sizes[4], from_strides[4], to_strides[4];
} Block;

static void copy_rows(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const Block of = *CONSTANT_AT(Block, s->weights);
    const int last = min(part.x1 * TILE_PIXELS, s->batches * s->out_height * s->out_width), depth = s->depth_out;
    for (int row = part.x0 * TILE_PIXELS; row < last; ++row) {
        size_t from = of.from, to = of.to;
        int rest = row;
        for (int d = 3; d >= 0; --d) {
            const int at = rest % of.sizes[d];
            rest /= of.sizes[d];
            from += (size_t)at * of.from_strides[d];
            to += (size_t)at * of.to_strides[d];
        }
        copy_row(src + from, depth, dst + to);
    }
}

static void fill_rows(const Step *s, Part part, global T *dst)
{
    const int last = min(part.x1 * TILE_PIXELS, s->batches * s->out_height * s->out_width) * s->depth_out;
    const COMPUTE_T value = s->low;
    int i = part.x0 * TILE_PIXELS * s->depth_out;
    for (; i + 16 <= last; i += 16)
        STORE16(dst, i, (COMPUTE_T16)value);
    for (; i < last; ++i)
        STORE(dst, i, value);
}

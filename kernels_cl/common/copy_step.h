// SPDX-License-Identifier: Apache-2.0
// copy_step.h: rows of a tensor in another order as a step of chain.cl.
// Maths    row (i, j, k) of dst, counted over sizes, is the row of src at i * strides[0] + j * strides[1] + k * strides[2]
// Tensors  src, dst of T; dst [batches * out_height * out_width, depth_out], dense; weights: RowsOf
// Units    strides in elements
// Exact    yes

typedef struct {
    int sizes[3], strides[3];
} RowsOf;

static void copy_rows(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const RowsOf from = *CONSTANT_AT(RowsOf, s->weights);
    const int last = min(part.x1 * TILE_PIXELS, s->batches * s->out_height * s->out_width), depth = s->depth_out;
    for (int row = part.x0 * TILE_PIXELS; row < last; ++row) {
        const int k = row % from.sizes[2], j = row / from.sizes[2] % from.sizes[1], i = row / from.sizes[2] / from.sizes[1];
        global const T *x = src + ((size_t)i * from.strides[0] + (size_t)j * from.strides[1] + (size_t)k * from.strides[2]);
        global T *y = dst + (size_t)row * depth;
        if (depth < 16)
            store_lanes(y, 0, load_lanes(x, 0, depth), depth);
        else
            for (int c = 0; c < depth; c += 16)
                STORE16(y, min(c, depth - 16), LOAD16(x, min(c, depth - 16)));
    }
}

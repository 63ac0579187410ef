// SPDX-License-Identifier: Apache-2.0
// resize_step.h: RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR as steps of chain.cl.
// Maths    bilinear: resize.h; nearest neighbour: the pixel (rows[y], columns[x])
// Tensors  src [batches, height, width, depth], dst [batches, out_height, out_width, depth] of T, dense
//          one number for each output row or column: bilinear: weights, bias int: the rows above and below; multipliers float: how far
//          between them; shifts, roundings, scales: of columns; nearest neighbour: weights: rows, bias: columns
// Exact    as resize.h; nearest neighbour: yes

static void resize_bilinear(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    global const int *above = CONSTANT_AT(int, s->weights), *below = CONSTANT_AT(int, s->bias);
    global const int *left = CONSTANT_AT(int, s->shifts), *right = CONSTANT_AT(int, s->roundings);
    global const float *down = CONSTANT_AT(float, s->multipliers), *across = CONSTANT_AT(float, s->scales);
    const int depth = s->depth_out, last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    const int elements = s->batches * s->height * s->width * depth;
    for (int pixel = part.x0 * s->unit_pixels; pixel < last;) {
        const int row = pixel / s->out_width, x = pixel - row * s->out_width, b = row / s->out_height, y = row - b * s->out_height;
        const int top = (b * s->height + above[y]) * s->width * depth, bottom = (b * s->height + below[y]) * s->width * depth;
        const int count = min(s->out_width - x, last - pixel);
        blend_row(src, elements, top, bottom, down[y], left + x, right + x, across + x, depth, dst + (size_t)pixel * depth, count,
            (last - pixel) * depth);
        pixel += count;
    }
}

static void resize_nearest(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    global const int *rows = CONSTANT_AT(int, s->weights), *columns = CONSTANT_AT(int, s->bias);
    const int depth = s->depth_out, last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    for (int pixel = part.x0 * s->unit_pixels; pixel < last; ++pixel) {
        const int row = pixel / s->out_width, x = pixel - row * s->out_width, b = row / s->out_height, y = row - b * s->out_height;
        copy_row(src + (size_t)((b * s->height + rows[y]) * s->width + columns[x]) * depth, depth, dst + (size_t)pixel * depth);
    }
}

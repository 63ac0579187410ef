// SPDX-License-Identifier: Apache-2.0
// softmax_step.h: SOFTMAX along the last axis as a step of chain.cl.
// Maths    as softmax_rows of softmax.cl and softmax_quant8.cl
// Tensors  src, dst [batches * out_height * out_width, depth_out] of T, dense
// Units    low: beta (real); zero_out: offset, weights: exponentials, bias: terms, int [256] each (8-bit)
// Exact    8-bit: yes; real: sums in a fixed order

#if QUANTIZED
static inline void softmax_row(const Step *s, global const T *src, global T *dst, global const uchar *constants)
{
    global const int *exponentials = CONSTANT_AT(int, s->weights), *terms = CONSTANT_AT(int, s->bias);
    const int axis = s->depth_out, whole = axis & ~15, offset = s->zero_out;
    int16 largest16 = (int16)-128;
    for (int i = 0; i < whole; i += 16)
        largest16 = max(largest16, LOAD16(src, i));
    int largest = largest_lane(largest16);
    for (int i = whole; i < axis; ++i)
        largest = max(largest, LOAD(src, i));
    long sum = 0;
    for (int i = 0; i < axis; ++i)
        sum += terms[largest - LOAD(src, i)];
    const int length = 64 - (int)clz(sum), inverse = reciprocal(half_of(sum, length));
    if (axis < 512) {
        for (int i = 0; i < axis; ++i)
            STORE(dst, i, result_of(exponentials[largest - LOAD(src, i)], inverse, length + 3) + offset);
        return;
    }
    T results[256]; // of every difference
    for (int i = 0; i < 256; ++i)
        results[i] = (T)(result_of(exponentials[i], inverse, length + 3) + offset);
    for (int i = 0; i < axis; ++i)
        dst[i] = results[largest - LOAD(src, i)];
}

#else
static __attribute__((noinline)) void softmax_of_floats(float beta, global const T *src, global T *dst, int axis, int rows)
{
    softmax_of_rows(beta, src, dst, axis, rows);
}
#endif

static __attribute__((noinline)) void softmax_rows(
    const Step *s, Part part, global uchar *const *buffers, global const uchar *constants)
{
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width), axis = s->depth_out;
    int row = part.x0 * s->unit_pixels;
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64) + (size_t)row * axis;
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64) + (size_t)row * axis;
#if QUANTIZED
    for (; axis < 16 && row + 16 <= last; row += 16, src += 16 * axis, dst += 16 * axis)
        softmax_columns(CONSTANT_AT(int, s->weights), CONSTANT_AT(int, s->bias), s->zero_out, src, dst, axis);
    for (; row < last; ++row, src += axis, dst += axis)
        softmax_row(s, src, dst, constants);
#else
    softmax_of_floats(s->low, src, dst, axis, last - row);
#endif
}

// SPDX-License-Identifier: Apache-2.0
// softmax_step.h: SOFTMAX along the last axis as a step of chain.cl.
// Maths    as softmax_rows of softmax.cl and softmax_quant8.cl
// Tensors  src, dst [batches * out_height * out_width, depth_out] of T, dense
// Units    low: beta (real); zero_out: offset, weights: exponentials, bias: terms, int [256] each (8-bit)
// Exact    8-bit: yes; real: sums in a fixed order

#if !QUANTIZED
static __attribute__((noinline)) void softmax_of_floats(float beta, global const T *src, global T *dst, int axis, int rows)
{
    softmax_of_rows(beta, src, dst, axis, rows);
}
#endif

static __attribute__((noinline)) void softmax_rows(
    const Step *s, Part part, global uchar *const *buffers, global const uchar *constants)
{
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width), axis = s->depth_out;
    const int row = part.x0 * s->unit_pixels;
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64) + (size_t)row * axis;
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64) + (size_t)row * axis;
#if QUANTIZED
    softmax_of_rows(CONSTANT_AT(int, s->weights), CONSTANT_AT(int, s->bias), s->zero_out, src, dst, axis, last - row);
#else
    softmax_of_floats(s->low, src, dst, axis, last - row);
#endif
}

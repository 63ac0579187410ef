// SPDX-License-Identifier: Apache-2.0
// softmax_step.h: SOFTMAX along the last axis as a step of chain.cl.
// Maths    as softmax_rows of softmax.cl and softmax_quant8.cl
// Tensors  src, dst [batches * out_height * out_width, depth_out] of T, dense
// Units    low: beta (real); zero_out: offset, weights: exponentials, bias: terms, int [256] each (8-bit)
// Exact    8-bit: yes; real: sums in a fixed order

#if T_IS_FLOAT
#define EXPONENTIAL_OF(x) exp_below_zero16(beta * ((x) - largest))

// A row of fewer than sixteen.
static inline void softmax_lanes(float beta, global const T *src, global T *dst, int axis)
{
    float largest = -INFINITY, sum = 0.0f;
    for (int i = 0; i < axis; ++i)
        largest = fmax(largest, LOAD(src, i));
    const float16 parts = EXPONENTIAL_OF(load_lanes(src, 0, axis));
    float lanes[16];
    vstore16(parts, 0, lanes);
    for (int i = 0; i < axis; ++i)
        sum += lanes[i];
    store_lanes(dst, 0, (1.0f / sum) * parts, axis);
}

// The last vector of a row may overlap the one before it: it is read first, as the output may lie where the input does.
static inline void softmax_row(const Step *s, global const T *src, global T *dst, global const uchar *constants)
{
    const int axis = s->depth_out, whole = axis & ~15, rest = axis - whole;
    const float beta = s->low;
    if (axis < 16) {
        softmax_lanes(beta, src, dst, axis);
        return;
    }
    const float16 end = LOAD16(src, axis - 16);
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float16 largest16 = end;
    for (int i = 0; i < whole; i += 16)
        largest16 = fmax(largest16, LOAD16(src, i));
    const float largest = largest_lane(largest16);
    float16 sum16 = (float16)0.0f;
    for (int i = 0; i < whole; i += 16) {
        const float16 part = EXPONENTIAL_OF(LOAD16(src, i));
        sum16 += part;
        KEEP16(dst, i, part);
    }
    float16 last = end;
    if (rest) {
        last = EXPONENTIAL_OF(end);
        sum16 += lane < 16 - rest ? (float16)0.0f : last;
    }
    const float share = 1.0f / sum_of_lanes(sum16);
    for (int i = 0; i < whole; i += 16)
        STORE16(dst, i, share * KEPT16(dst, i, EXPONENTIAL_OF(LOAD16(src, i))));
    if (rest)
        STORE16(dst, axis - 16, share * last);
}
#else
// The largest of a row, half its sum, and the bits of that.
static inline void sum_row(const Step *s, global const T *src, global const uchar *constants, int *largest, int *half_sum, int *length)
{
    global const int *terms = CONSTANT_AT(int, s->bias);
    const int axis = s->depth_out, whole = axis & ~15;
    int found = -128;
    if (whole) {
        int16 largest16 = (int16)-128;
        for (int i = 0; i < whole; i += 16)
            largest16 = max(largest16, LOAD16(src, i));
        found = largest_lane(largest16);
    }
    for (int i = whole; i < axis; ++i)
        found = max(found, LOAD(src, i));
    long sum = 0;
    for (int i = 0; i < axis; ++i)
        sum += terms[found - LOAD(src, i)];
    *largest = found;
    *length = 64 - (int)clz(sum);
    *half_sum = half_of(sum, *length);
}

static inline void finish_row(const Step *s, global const T *src, global T *dst, global const uchar *constants, int largest, int inverse, int length)
{
    global const int *exponentials = CONSTANT_AT(int, s->weights);
    const int axis = s->depth_out, offset = s->zero_out;
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

// At most sixteen rows: of their sums the reciprocals are found at once.
static inline void softmax_some(const Step *s, global const T *src, global T *dst, global const uchar *constants, int rows)
{
    int largest[16], half_sums[16], lengths[16], inverses[16];
    for (int i = 0; i < 16; ++i)
        half_sums[i] = 1 << 30;
    for (int i = 0; i < rows; ++i)
        sum_row(s, src + (size_t)i * s->depth_out, constants, largest + i, half_sums + i, lengths + i);
    vstore16(reciprocal16(vload16(0, half_sums)), 0, inverses);
    for (int i = 0; i < rows; ++i) {
        const size_t at = (size_t)i * s->depth_out;
        finish_row(s, src + at, dst + at, constants, largest[i], inverses[i], lengths[i]);
    }
}
#endif

static __attribute__((noinline)) void softmax_rows(
    const Step *s, Part part, global uchar *const *buffers, global const uchar *constants)
{
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64);
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64);
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
#if T_IS_FLOAT
    for (int row = part.x0 * s->unit_pixels; row < last; ++row)
        softmax_row(s, src + (size_t)row * s->depth_out, dst + (size_t)row * s->depth_out, constants);
#else
    for (int row = part.x0 * s->unit_pixels; row < last; row += 16)
        softmax_some(s, src + (size_t)row * s->depth_out, dst + (size_t)row * s->depth_out, constants, min(16, last - row));
#endif
}

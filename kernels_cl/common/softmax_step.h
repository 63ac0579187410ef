// SPDX-License-Identifier: Apache-2.0
// softmax_step.h: SOFTMAX along the last axis as a step of chain.cl.
// Maths    as softmax_rows of softmax.cl and softmax_quant8.cl
// Tensors  src, dst [batches * out_height * out_width, depth_out] of T, dense
// Units    low: beta (real); zero_out: offset, weights: exponentials, bias: terms, int [256] each (8-bit)
// Exact    8-bit: yes; real: sums in a fixed order

// Element by element of sixteen rows: a lane is a row. No loops over lanes: compilers make gathers and scatters of them, which take longer.
#define LANE(i) LOAD(src, (i) * axis)
static inline COMPUTE_T16 column_of_rows(global const T *src, int axis)
{
    return (COMPUTE_T16)(LANE(0), LANE(1), LANE(2), LANE(3), LANE(4), LANE(5), LANE(6), LANE(7),
                     LANE(8), LANE(9), LANE(10), LANE(11), LANE(12), LANE(13), LANE(14), LANE(15));
}

#define STORE_LANE(i, hex) STORE(dst, (i) * axis, column.s##hex);
static inline void store_column(global T *dst, int axis, COMPUTE_T16 column)
{
    STORE_LANE(0, 0) STORE_LANE(1, 1) STORE_LANE(2, 2) STORE_LANE(3, 3) STORE_LANE(4, 4) STORE_LANE(5, 5) STORE_LANE(6, 6) STORE_LANE(7, 7)
    STORE_LANE(8, 8) STORE_LANE(9, 9) STORE_LANE(10, a) STORE_LANE(11, b) STORE_LANE(12, c) STORE_LANE(13, d) STORE_LANE(14, e) STORE_LANE(15, f)
}

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

// Sixteen rows of fewer than sixteen, by the sums of softmax_lanes.
static inline void softmax_columns(const Step *s, global const T *src, global T *dst, global const uchar *constants)
{
    const int axis = s->depth_out;
    const float beta = s->low;
    float16 parts[15], largest = (float16)-INFINITY, sum = (float16)0.0f;
    for (int i = 0; i < axis; ++i) {
        const float16 column = column_of_rows(src + i, axis);
        largest = column > largest ? column : largest;
    }
    for (int i = 0; i < axis; ++i) {
        parts[i] = EXPONENTIAL_OF(column_of_rows(src + i, axis));
        sum += parts[i];
    }
    const float16 share = 1.0f / sum;
    for (int i = 0; i < axis; ++i)
        store_column(dst + i, axis, share * parts[i]);
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

#define OF_TABLE(table, i) (int16)(table[i.s0], table[i.s1], table[i.s2], table[i.s3], table[i.s4], table[i.s5], table[i.s6], table[i.s7], \
                                  table[i.s8], table[i.s9], table[i.sa], table[i.sb], table[i.sc], table[i.sd], table[i.se], table[i.sf])

// Sixteen rows of fewer than sixteen, whose sums have at most 24 bits.
static inline void softmax_columns(const Step *s, global const T *src, global T *dst, global const uchar *constants)
{
    global const int *exponentials = CONSTANT_AT(int, s->weights), *terms = CONSTANT_AT(int, s->bias);
    const int axis = s->depth_out;
    int16 largest = (int16)-128, sum = (int16)0;
    for (int i = 0; i < axis; ++i)
        largest = max(largest, column_of_rows(src + i, axis));
    for (int i = 0; i < axis; ++i) {
        const int16 below = largest - column_of_rows(src + i, axis);
        sum += OF_TABLE(terms, below);
    }
    const int16 length = 32 - clz(sum), inverse = reciprocal16(as_int16(as_uint16(sum << (32 - length)) >> 1));
    for (int i = 0; i < axis; ++i) {
        const int16 below = largest - column_of_rows(src + i, axis);
        const int16 product = saturating_rounding_doubling_high_mul16(OF_TABLE(exponentials, below), inverse);
        store_column(dst + i, axis, min(rounding_divide_by_pot16(product, length + 3), (int16)255) + s->zero_out);
    }
}
#endif

static __attribute__((noinline)) void softmax_rows(
    const Step *s, Part part, global uchar *const *buffers, global const uchar *constants)
{
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64);
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64);
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    int row = part.x0 * s->unit_pixels;
    if (s->depth_out < 16)
        for (; row + 16 <= last; row += 16)
            softmax_columns(s, src + (size_t)row * s->depth_out, dst + (size_t)row * s->depth_out, constants);
    for (; row < last; ++row)
        softmax_row(s, src + (size_t)row * s->depth_out, dst + (size_t)row * s->depth_out, constants);
}

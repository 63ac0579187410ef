// SPDX-License-Identifier: Apache-2.0
// mean_step.h: MEAN over neighbouring dimensions as a step of chain.cl, and 8-bit depthwise convolutions of whole pictures with equal weights.
// Maths    y[o, i] = sum over t of x[o, t, i] / terms; quantised:
//          clamp(multiply_by_quantized_multiplier(sum * weight + offset, multiplier, exponent) + zero_point, low, high)
// Tensors  src [outer, terms, inner], dst [outer, inner] of T, dense; weights: MeanOf
// Needs    inner 1, or at least 16; quantised: at most 2^23 terms
// Exact    quantised: yes; float: sums of sums of sixteen lanes, or of RUN / 4 terms

#define RUN 32

typedef struct {
    int terms, inner, weight, offset, multiplier, exponent, zero_point;
} MeanOf;

#if T_IS_FLOAT
#define SHARE(V, SUFFIX, sum) ((sum) / (V)(m.terms))
#else
#define SHARE(V, SUFFIX, sum)                                                                                                            \
    activate_int##SUFFIX(multiply_by_quantized_multiplier##SUFFIX((sum) * m.weight + m.offset, (V)(m.multiplier), (V)(m.exponent))       \
                             + m.zero_point, s->low, s->high)
#endif

static inline COMPUTE_T sum_of_row(global const T *x, int terms)
{
    COMPUTE_T16 sums = 0;
    COMPUTE_T sum = 0;
    int t = 0;
    while (t + 16 <= terms) {
        COMPUTE_T16 some = 0;
        for (const int end = min(t + 16 * RUN, terms - 15); t < end; t += 16)
            some += LOAD16(x, t);
        sums += some;
    }
    for (; t < terms; ++t)
        sum += LOAD(x, t);
    return sum + sum_of_lanes(sums);
}

// Four sums at a time: each waits for its own last addition.
static inline COMPUTE_T16 sum_of_lines(global const T *x, int terms, int inner)
{
    COMPUTE_T16 sum = 0;
    int t = 0;
    while (t + 4 <= terms) {
        COMPUTE_T16 some[4] = {0, 0, 0, 0};
        for (const int end = min(t + RUN, terms - 3); t < end; t += 4)
            _Pragma("unroll") for (int k = 0; k < 4; ++k)
                some[k] += LOAD16(x, (t + k) * inner);
        sum += (some[0] + some[1]) + (some[2] + some[3]);
    }
    for (; t < terms; ++t)
        sum += LOAD16(x, t * inner);
    return sum;
}

static void mean(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const MeanOf m = *CONSTANT_AT(MeanOf, s->weights);
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    for (int o = part.x0 * s->unit_pixels; o < last; ++o) {
        global const T *x = src + (size_t)o * m.terms * m.inner;
        if (m.inner == 1) {
            STORE(dst, o, SHARE(COMPUTE_T, , sum_of_row(x, m.terms)));
            continue;
        }
        for (int c = part.y0 * s->unit_channels; c < min(part.y1 * s->unit_channels, m.inner); c += 16) {
            const int at = min(c, m.inner - 16);
            STORE16(dst, o * m.inner + at, SHARE(COMPUTE_T16, 16, sum_of_lines(x + at, m.terms, m.inner)));
        }
    }
}

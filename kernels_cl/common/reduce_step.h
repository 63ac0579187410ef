// SPDX-License-Identifier: Apache-2.0
// reduce_step.h: MEAN and REDUCE_SUM over neighbouring dimensions as steps of chain.cl, REDUCE_MAX and REDUCE_MIN of rows, and 8-bit depthwise
//          convolutions of whole pictures with equal weights.
// Maths    y[o, i] = sum over t of x[o, t, i] / weight; quantised:
//          clamp(multiply_by_quantized_multiplier(sum * weight + offset, multiplier, exponent) + zero_point, low, high)
//          extreme: 1, -1: y[o] = max, min over t of x[o, t]; NaN wins
// Tensors  src [outer, terms, inner], dst [outer, inner] of T, dense; weights: Reduction
// Needs    inner 1, or at least 16 and no extreme; quantised sums: at most 2^23 terms
// Exact    quantised and extremes: yes; float: sums of sums of sixteen lanes, or of RUN / 4 terms

#define RUN 32

typedef struct {
    int terms, inner, extreme, weight, offset, multiplier, exponent, zero_point;
} Reduction;

#if T_IS_FLOAT
#define REDUCED(V, SUFFIX, sum) ((sum) / (V)(r.weight))
#else
#define REDUCED(V, SUFFIX, sum)                                                                                                          \
    activate_int##SUFFIX(multiply_by_quantized_multiplier##SUFFIX((sum) * r.weight + r.offset, (V)(r.multiplier), (V)(r.exponent))       \
                             + r.zero_point, s->low, s->high)
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

// The greatest of the numbers times `sign`, which is 1 or -1. The last sixteen of a row begin within those before.
static inline COMPUTE_T greatest_of_row(global const T *x, int terms, COMPUTE_T sign)
{
    COMPUTE_T16 found = LOAD16(x, 0) * sign;
#if T_IS_FLOAT
    int16 is_odd = 0;
#endif
    for (int t = 0; t < terms; t += 16) {
        const COMPUTE_T16 value = LOAD16(x, min(t, terms - 16)) * sign;
#if T_IS_FLOAT
        is_odd |= value != value;
#endif
        found = value > found ? value : found;
    }
#if T_IS_FLOAT
    if (any(is_odd))
        return NAN;
#endif
    return largest_lane(found);
}

static void reduce(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const Reduction r = *CONSTANT_AT(Reduction, s->weights);
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    for (int o = part.x0 * s->unit_pixels; o < last; ++o) {
        global const T *x = src + (size_t)o * r.terms * r.inner;
        if (r.extreme) {
            STORE(dst, o, greatest_of_row(x, r.terms, (COMPUTE_T)r.extreme) * (COMPUTE_T)r.extreme);
            continue;
        }
        if (r.inner == 1) {
            STORE(dst, o, REDUCED(COMPUTE_T, , sum_of_row(x, r.terms)));
            continue;
        }
        for (int c = part.y0 * s->unit_channels; c < min(part.y1 * s->unit_channels, r.inner); c += 16) {
            const int at = min(c, r.inner - 16);
            STORE16(dst, o * r.inner + at, REDUCED(COMPUTE_T16, 16, sum_of_lines(x + at, r.terms, r.inner)));
        }
    }
}

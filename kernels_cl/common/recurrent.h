// SPDX-License-Identifier: Apache-2.0
// recurrent.h: what the kernels of recurrent cells share: a work-item takes LANES neighbouring units at once.
// Defines  T: float | half, GROUP, common/types.h (before inclusion)
// Gives    LANES, LANES_T: 16, float16 where a group is one work-item (CPUs), else 1, float (neighbouring items coalesce)
//          UNITS(p, i), SET_UNITS(p, i, v): units i.. of `global float *p`; WEIGHTS(p, i): the same of T; i a multiple of LANES,
//          rows padded with zeros to a multiple of 16
//          EVERY_UNIT(i, padded, first, stride): loop over the units of work-item `first` of `stride`
//          add_products: a vector times a matrix, added to sums; ADD_PRODUCTS defines it for other types of vectors

#if GROUP == 1
#define LANES 16
typedef float16 LANES_T;
#define UNITS(p, i) (*(global const float16 *)((p) + (i)))
#define SET_UNITS(p, i, v) (*(global float16 *)((p) + (i)) = (v))
#define WEIGHTS(p, i) LOAD16(p, i)
#define UNIT_RUN(padded, stride) (((padded) / 16 + (stride) - 1) / (stride) * 16)
#define EVERY_UNIT(i, padded, first, stride) \
    for (int i = (first) * UNIT_RUN(padded, stride); i < min(((first) + 1) * UNIT_RUN(padded, stride), padded); i += 16)
#else
#define LANES 1
typedef float LANES_T;
#define UNITS(p, i) ((p)[i])
#define SET_UNITS(p, i, v) ((p)[i] = (v))
#define WEIGHTS(p, i) LOAD(p, i)
#define EVERY_UNIT(i, padded, first, stride) for (int i = first; i < (padded); i += stride)
#endif


// dst[0..count) from units i.. on; dst is not padded.
static inline void store_units(global T *dst, int i, int count, LANES_T values)
{
#if LANES == 16
    if (i + 16 > count) {
        float lane[16];
        vstore16(values, 0, lane);
        for (int at = i; at < count; ++at)
            STORE(dst, at, lane[at - i]);
        return;
    }
    STORE16(dst, i, values);
#else
    if (i < count)
        STORE(dst, i, values);
#endif
}

// Units i.. of src[0..count), 0 beyond; src is not padded.
static inline LANES_T load_units(global const T *src, int i, int count)
{
#if LANES == 16
    if (i + 16 > count) {
        float lane[16];
        for (int at = 0; at < 16; ++at)
            lane[at] = i + at < count ? LOAD(src, i + at) : 0.0f;
        return vload16(0, lane);
    }
    return LOAD16(src, i);
#else
    return i < count ? LOAD(src, i) : 0.0f;
#endif
}

// NAME: sums[columns] += factors[depth] * weights [depth, columns], for the part of the columns that is a work-item's.
#if LANES == 16
// Weights are read in the order of memory, for eight factors at once. A function of its own: PoCL 7.1 (LLVM 21) loses the second loop
// where it is inlined.
#define ADD_PRODUCTS(NAME, F, FACTOR)                                                                                      \
    static __attribute__((noinline)) void NAME(global float *sums, global const F *factors, global const T *weights,       \
                                               int depth, int columns, int first, int stride)                              \
    {                                                                                                                      \
        int k = 0;                                                                                                         \
        for (; k + 8 <= depth; k += 8) {                                                                                   \
            float16 factor[8];                                                                                             \
            for (int j = 0; j < 8; ++j)                                                                                    \
                factor[j] = (float16)FACTOR(factors, k + j);                                                               \
            EVERY_UNIT(i, columns, first, stride) {                                                                        \
                float16 sum = UNITS(sums, i), other = factor[4] * WEIGHTS(weights, (k + 4) * columns + i);                 \
                for (int j = 0; j < 4; ++j)                                                                                \
                    sum = fma(factor[j], WEIGHTS(weights, (k + j) * columns + i), sum);                                    \
                for (int j = 5; j < 8; ++j)                                                                                \
                    other = fma(factor[j], WEIGHTS(weights, (k + j) * columns + i), other);                                \
                SET_UNITS(sums, i, sum + other);                                                                           \
            }                                                                                                              \
        }                                                                                                                  \
        for (; k < depth; ++k) {                                                                                           \
            const float16 factor = (float16)FACTOR(factors, k);                                                            \
            EVERY_UNIT(i, columns, first, stride)                                                                          \
                SET_UNITS(sums, i, fma(factor, WEIGHTS(weights, k * columns + i), UNITS(sums, i)));                        \
        }                                                                                                                  \
    }
#else
#define ADD_PRODUCTS(NAME, F, FACTOR)                                                                                      \
    static inline void NAME(global float *sums, global const F *factors, global const T *weights, int depth, int columns,  \
                            int first, int stride)                                                                         \
    {                                                                                                                      \
        int i = first;                                                                                                     \
        for (; i + 3 * stride < columns; i += 4 * stride) {                                                                \
            float sum[4];                                                                                                  \
            for (int j = 0; j < 4; ++j)                                                                                    \
                sum[j] = sums[i + j * stride];                                                                             \
            for (int k = 0, at = i; k < depth; ++k, at += columns)                                                         \
                for (int j = 0; j < 4; ++j)                                                                                \
                    sum[j] = fma(FACTOR(factors, k), LOAD(weights, at + j * stride), sum[j]);                              \
            for (int j = 0; j < 4; ++j)                                                                                    \
                sums[i + j * stride] = sum[j];                                                                             \
        }                                                                                                                  \
        for (; i < columns; i += stride) {                                                                                 \
            float sum = sums[i];                                                                                           \
            for (int k = 0; k < depth; ++k)                                                                                \
                sum = fma(FACTOR(factors, k), LOAD(weights, k * columns + i), sum);                                        \
            sums[i] = sum;                                                                                                 \
        }                                                                                                                  \
    }
#endif

#define REAL_FACTOR(p, i) ((p)[i])
ADD_PRODUCTS(add_products, float, REAL_FACTOR)

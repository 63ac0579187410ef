// SPDX-License-Identifier: Apache-2.0
// mean.h: a sum over a number of pixels, divided.
// Defines  T, common/types.h (required, before inclusion)
// Gives    MEAN_OF(sum, pixels), MEAN_OF16: of COMPUTE_T and COMPUTE_T16; integers rounded half away from 0, pixels <= 2^23

#if T_IS_FLOAT
#define MEAN_OF(sum, pixels) ((sum) / (float)(pixels))
#define MEAN_OF16(sum, pixels) ((sum) / (float)(pixels))
#else
#define MEAN_OF(sum, pixels) mean_of(sum, pixels)
#define MEAN_OF16(sum, pixels) mean_of16(sum, pixels)
// Of the quotient rounded in float only the last unit can be wrong; the remainder tells.
#define DEFINE_MEAN(NAME, V, TO_FLOAT, TO_INT)                               \
    static inline V NAME(V sum, int pixels)                                  \
    {                                                                        \
        const V rounded = (sum < 0 ? -sum : sum) + pixels / 2;               \
        V mean = TO_INT(TO_FLOAT(rounded) * (1.0f / (float)pixels));         \
        const V rest = rounded - mean * pixels;                              \
        mean += (rest >> 31) - ((pixels - 1 - rest) >> 31);                  \
        return sum < 0 ? -mean : mean;                                       \
    }
#define TO_FLOAT16(v) WIDEN(v, float16)
#define TO_INT16(v) WIDEN(v, int16)
DEFINE_MEAN(mean_of, int, (float), (int))
DEFINE_MEAN(mean_of16, int16, TO_FLOAT16, TO_INT16)
#endif

// SPDX-License-Identifier: Apache-2.0
// centred.h: a convolution's bias, and its numbers less their zero points.
// Defines  T, QUANTIZED, common/types.h (required, before inclusion)
// Gives    BIAS_T, LOAD_BIAS(p, i); CENTRED(x, zero): x - zero where quantised, else x

#if QUANTIZED
typedef int BIAS_T;
#define LOAD_BIAS(p, i) ((p)[i])
#define CENTRED(x, zero) ((x) - (zero))
#else
typedef T BIAS_T;
#define LOAD_BIAS LOAD
#define CENTRED(x, zero) (x)
#endif

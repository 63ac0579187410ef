// SPDX-License-Identifier: Apache-2.0
// centred.h: a convolution's bias, its numbers less their zero points, and sums of their products.
// Defines  T, QUANTIZED, common/types.h (required, before inclusion)
// Gives    BIAS_T, LOAD_BIAS(p, i); LOAD_FILTER(p, i): an element of FILTER_T; CENTRED(x, zero): x - zero where quantised, else x
//          ADD_PRODUCT(a, b, sum): sum + a * b, fused where they are real; also of vectors

#if QUANTIZED
typedef int BIAS_T;
#define LOAD_BIAS(p, i) ((p)[i])
#define LOAD_FILTER(p, i) ((int)(p)[i])
#define CENTRED(x, zero) ((x) - (zero))
#define ADD_PRODUCT(a, b, sum) ((a) * (b) + (sum))
#else
typedef T BIAS_T;
#define LOAD_BIAS LOAD
#define LOAD_FILTER LOAD
#define CENTRED(x, zero) (x)
#define ADD_PRODUCT(a, b, sum) fma(a, b, sum)
#endif

// SPDX-License-Identifier: Apache-2.0
// broadcast.cl: MAXIMUM, MINIMUM, POW, PRELU, comparisons, LOGICAL_AND, LOGICAL_OR of two broadcast tensors of any rank.
// Maths    a, b: the elements; T uchar: table0[a], table1[b], whatever numbers the host wants compared or kept
//          compare: y = a op b; op by number: 0 ==, 1 !=, 2 >, 3 >=, 4 <, 5 <=
//          extreme: y = greatest ? max(a, b) : min(a, b); NaN wins
//          prelu:   y = a >= 0 ? a : a * b; T uchar: M(x, f) = multiply_by_quantized_multiplier(x, f.x, f.y),
//                   y = clamp(M(a, factors.xy), low, high) if a >= 0, else clamp(M(a * b, factors.zw), low, high), plus zero_out;
//                   bounds are the type's less zero_out
//          power:   y = a^b
// Tensors  src0, src1 of T, dst of T (compare: uchar), dense. The output's dimensions with neighbours merged are sizes (outermost
//          first, unused 1), strides0 and strides1 those of the inputs in elements, 0 where broadcast; tables int [256] (T uchar)
// Defines  T: float | half | int | uchar (required); uchar stands for 8-bit and bool types, signed or not
// Launch   global (>= count), local (64); one work-item per element; extra items return
// Exact    all but power (16 ulp) and prelu of half (computed in float)
#ifndef T
#error "broadcast.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/index.h"

#if TYPE_NUMBER == TYPE_NUMBER_uchar
#define TABLES global const int *table0, global const int *table1,
#define FIRST(at) table0[src0[at]]
#define SECOND(at) table1[src1[at]]
#else
#define TABLES
#define FIRST(at) LOAD(src0, at)
#define SECOND(at) LOAD(src1, at)
#endif

#define PLACE                                                                    \
    const int i = (int)get_global_id(0);                                         \
    if (i >= count)                                                              \
        return;                                                                  \
    const int2 at = offsets_in_two(i, sizes, strides0, strides1);                \
    const COMPUTE_T a = FIRST(at.x), b = SECOND(at.y);

kernel void compare(global const T *src0, global const T *src1, global uchar *dst, TABLES int8 sizes, int8 strides0, int8 strides1,
    int count, int operation)
{
    PLACE
    const int less = a < b, equal = a == b, greater = a > b;
    const int result = operation == 0 ? equal
                       : operation == 1 ? !equal
                       : operation == 2 ? greater
                       : operation == 3 ? greater || equal
                       : operation == 4 ? less
                                        : less || equal;
    dst[i] = (uchar)result;
}

kernel void extreme(global const T *src0, global const T *src1, global T *dst, TABLES int8 sizes, int8 strides0, int8 strides1, int count,
    int greatest)
{
    PLACE
    const int keep = (greatest ? a > b : a < b) || a != a;
    STORE(dst, i, keep ? a : b);
}

#if TYPE_NUMBER == TYPE_NUMBER_uchar
kernel void prelu(global const T *src0, global const T *src1, global T *dst, TABLES int8 sizes, int8 strides0, int8 strides1, int count,
    int4 factors, int low, int high, int zero_out)
{
    PLACE
    const int real = a >= 0 ? multiply_by_quantized_multiplier(a, factors.x, factors.y)
                            : multiply_by_quantized_multiplier(a * b, factors.z, factors.w);
    STORE(dst, i, clamp(real, low, high) + zero_out);
}
#elif T_IS_FLOAT
kernel void prelu(global const T *src0, global const T *src1, global T *dst, int8 sizes, int8 strides0, int8 strides1, int count)
{
    PLACE
    STORE(dst, i, a >= 0.0f ? a : a * b);
}

kernel void power(global const T *src0, global const T *src1, global T *dst, int8 sizes, int8 strides0, int8 strides1, int count)
{
    PLACE
    STORE(dst, i, pow(a, b));
}
#endif

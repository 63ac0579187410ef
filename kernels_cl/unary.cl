// SPDX-License-Identifier: Apache-2.0
// unary.cl: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT: a function of each element; 8-bit ones are activation_table.cl's.
// Maths    as the names say; rsqrt y = 1 / sqrt x; int: abs and neg wrap
// Tensors  src, dst: count elements of T
// Defines  T: float | half | int (required); int has abs and neg only
// Launch   global (>= count), local (64); one work-item per element; extra items return
// Exact    abs, floor, neg; the others within the errors of OpenCL's functions (at most 4 ulp), computed in float
#ifndef T
#error "unary.cl: define T"
#endif

#include "common/types.h"

#define MAP(NAME, FORMULA)                                          \
    kernel void NAME(global const T *src, global T *dst, int count) \
    {                                                               \
        const int i = (int)get_global_id(0);                        \
        if (i >= count)                                             \
            return;                                                 \
        const COMPUTE_T x = LOAD(src, i);                           \
        STORE(dst, i, FORMULA);                                     \
    }

#if T_IS_FLOAT
MAP(unary_abs, fabs(x))
MAP(unary_neg, -x)
MAP(unary_exp, exp(x))
MAP(unary_floor, floor(x))
MAP(unary_log, log(x))
MAP(unary_rsqrt, 1.0f / sqrt(x))
MAP(unary_sin, sin(x))
MAP(unary_sqrt, sqrt(x))
#else
MAP(unary_abs, (int)abs(x))
MAP(unary_neg, (int)(0u - (uint)x))
#endif

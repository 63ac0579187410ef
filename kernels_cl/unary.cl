// SPDX-License-Identifier: Apache-2.0
// unary.cl: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT: a function of each element; 8-bit ones are activation_table.cl's.
// Maths    as the names say; rsqrt y = 1 / sqrt x; int: abs and neg wrap
// Tensors, Units, Launch: common/map.h
// Defines  T: float | half | int (required); int has abs and neg only
//          GROUP: work-items of a group of VECTOR_KERNEL
// Exact    abs, floor, neg; the others within the errors of OpenCL's functions (at most 4 ulp), computed in float
#ifndef T
#error "unary.cl: define T"
#endif

#include "common/types.h"
#include "common/map.h"

#if T_IS_FLOAT
#include "common/exponential.h"
#include "common/logarithm.h"
#include "common/sine.h"

// Large ones are done one by one: PoCL 3.0's sin of a vector is wrong for small elements beside one of 1e7 and more.
static inline float16 sine(float16 x)
{
    const int16 is_large = !(fabs(x) <= MOST_ANGLE);
    float16 y = sine_16(select(x, (float16)0.0f, is_large));
    if (any(is_large)) {
        float angles[16], sines[16];
        vstore16(x, 0, angles);
        vstore16(y, 0, sines);
        for (int k = 0; k < 16; ++k)
            if (!(fabs(angles[k]) <= MOST_ANGLE))
                sines[k] = sin(angles[k]);
        y = vload16(0, sines);
    }
    return y;
}

MAP(unary_abs, fabs(x), )
MAP(unary_neg, -x, )
MAP(unary_exp, exp_16(x), )
MAP(unary_floor, floor(x), )
MAP(unary_log, log_16(x), )
MAP(unary_rsqrt, 1.0f / sqrt(x), )
MAP(unary_sin, sine(x), )
MAP(unary_sqrt, sqrt(x), )
#else
MAP(unary_abs, WIDEN(abs(x), int16), )
MAP(unary_neg, as_int16((uint16)0u - as_uint16(x)), )
#endif

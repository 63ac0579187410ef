// SPDX-License-Identifier: Apache-2.0
// activation_smooth.cl: LOGISTIC, TANH, HARD_SWISH, ELU of real numbers; 8-bit ones are activation_table.cl's.
// Maths    logistic y = 1 / (1 + exp(-x)); tanh y = tanh x; hard_swish y = x * (min(max(x + 3, 0), 6) / 6)
//          elu y = max(0, x) + min(0, alpha * (exp x - 1)); 0 * infinity counts as 0
// Tensors  src, dst: count elements of T
// Defines  T: float | half (required)
// Launch   global (>= count), local (64); one work-item per element; extra items return
// Exact    within the errors of exp, expm1 and tanh (3, 3 and 5 ulp), computed in float
#ifndef T
#error "activation_smooth.cl: define T"
#endif

#include "common/types.h"

#define MAP(NAME, FORMULA)                                              \
    kernel void NAME(global const T *src, global T *dst, int count)     \
    {                                                                   \
        const int i = (int)get_global_id(0);                            \
        if (i >= count)                                                 \
            return;                                                     \
        const float x = LOAD(src, i);                                   \
        STORE(dst, i, FORMULA);                                         \
    }

MAP(logistic, 1.0f / (1.0f + exp(-x)))
MAP(hyperbolic_tangent, tanh(x))
MAP(hard_swish, x *(clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f))

kernel void elu(global const T *src, global T *dst, float alpha, int count)
{
    const int i = (int)get_global_id(0);
    if (i >= count)
        return;
    const float x = LOAD(src, i);
    STORE(dst, i, (x < 0.0f ? 0.0f : x) + fmin(alpha * expm1(x), 0.0f));
}

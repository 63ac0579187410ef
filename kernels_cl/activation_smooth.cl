// SPDX-License-Identifier: Apache-2.0
// activation_smooth.cl: LOGISTIC, TANH, HARD_SWISH, ELU of real numbers; 8-bit ones are activation_table.cl's.
// Maths    logistic y = 1 / (1 + exp(-x)); hyperbolic_tangent y = tanh x; hard_swish y = x * clamp(x + 3, 0, 6) / 6;
//          elu y = max(0, x) + min(0, alpha * (exp x - 1)); 0 * infinity counts as 0
// Tensors, Units, Launch: common/map.h; alpha has no unit
// Defines  T: float | half (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Exact    as common/exponential.h, computed in float
#ifndef T
#error "activation_smooth.cl: define T"
#endif

#include "common/types.h"
#include "common/exponential.h"
#include "common/map.h"

static inline float16 elu_16(float16 x, float alpha)
{
    return (x < 0.0f ? (float16)0.0f : x) + fmin(alpha * expm1_16(x), 0.0f);
}

MAP(logistic, logistic_16(x), )
MAP(hyperbolic_tangent, tanh_16(x), )
MAP(hard_swish, x *(clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f), )
#define ALPHA , float alpha
MAP(elu, elu_16(x, alpha), ALPHA)

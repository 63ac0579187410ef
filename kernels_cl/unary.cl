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

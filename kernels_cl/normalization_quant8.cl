// SPDX-License-Identifier: Apache-2.0
// normalization_quant8.cl: L2_NORMALIZATION of 8-bit numbers, in fixed point.
// Maths    s = sum (q - zero_in)^2, at most 2^31 - 1; 1 / sqrt s = (mantissa, shift) as inverse_sqrt_multipliers of quantization.py
//          y = saturate(128 * (q - zero_in) * mantissa * 2^(-shift - 31) + zero_out), of char rounded once, of uchar twice
// Tensors  src, dst [outer, axis, inner] of T, dense row-major
// Units    zero_out: 128, or 0 for char
// Defines  T: uchar | char (required)
// Launch   global (>= count), count = outer * inner, local (64); one work-item writes axis values; extra items return
// Exact    yes, as LiteRT's reference kernels of both types
#ifndef T
#error "normalization_quant8.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/inverse_sqrt.h"

kernel void l2_normalization(global const T *src, global T *dst, int zero_in, int zero_out, int axis, int inner, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    long sum = 0;
    for (int i = 0; i < axis; ++i) {
        const int centred = LOAD(src, start + i * inner) - zero_in;
        sum += centred * centred;
    }
    const int2 factor = inverse_sqrt_multiplier(saturated_int(sum));
    for (int i = 0; i < axis; ++i) {
        const int centred = LOAD(src, start + i * inner) - zero_in;
        const int once = multiply_rounding_once(centred * 128, factor.x, -factor.y);
        const int twice = multiply_by_quantized_multiplier(centred * 128, factor.x, -factor.y);
        STORE_SAT(dst, start + i * inner, (T_IS_SIGNED ? once : twice) + zero_out);
    }
}

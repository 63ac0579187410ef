// SPDX-License-Identifier: Apache-2.0
// combined.h: ADD, SUB, MUL, DIV of sixteen pairs, by float32 arithmetic where the host says that it gives the same integers.
// Defines  T, common/types.h, common/quant.h, common/activation.h (required, before inclusion)
// Gives    combined16, and what common/combine.h does

#include "common/combine.h"

// Arguments as elementwise.cl says.
static inline COMPUTE_T16 combined16(COMPUTE_T16 a, COMPUTE_T16 b, int operation, COMPUTE_T low, COMPUTE_T high, int left_shift, int4 zeros,
    int2 factor0, int2 factor1, int2 factor_out, int by_floats, float4 reals)
{
#if TYPE_NUMBER == TYPE_NUMBER_uchar || TYPE_NUMBER == TYPE_NUMBER_char
    if (by_floats)
        return activate_int16(combined_by_floats16(a - zeros.x, b, operation, zeros, reals), low + zeros.z, high + zeros.z);
#endif
    return combine16(a, b, operation, (COMPUTE_T16)low, (COMPUTE_T16)high, left_shift, zeros, factor0, factor1, factor_out);
}

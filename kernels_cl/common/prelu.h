// SPDX-License-Identifier: Apache-2.0
// prelu.h: PRELU of codes, one and 16 at once.
// Maths    qa = a - zeros.x, qb = b - zeros.y; M(x, f) = multiply_by_quantized_multiplier(x, f.x, f.y);
//          clamp(M(qa, factors.xy), low, high) if qa >= 0, else clamp(M(qa * qb, factors.zw), low, high), plus zeros.z
// Units    low, high: the type's bounds less zeros.z
// Exact    yes
// Needs    common/quant.h

#define RECTIFY(V, SUFFIX)                                                                                      \
    static inline V rectified##SUFFIX(V a, V b, int4 zeros, int4 factors, int low, int high)                    \
    {                                                                                                           \
        const V x = a - zeros.x;                                                                                \
        const V kept = multiply_by_quantized_multiplier##SUFFIX(x, (V)factors.x, (V)factors.y);                 \
        const V scaled = multiply_by_quantized_multiplier##SUFFIX(x * (b - zeros.y), (V)factors.z, (V)factors.w); \
        return clamp(x >= (V)0 ? kept : scaled, (V)low, (V)high) + zeros.z;                                     \
    }
RECTIFY(int, )
RECTIFY(int16, 16)

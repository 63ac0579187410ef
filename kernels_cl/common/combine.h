// SPDX-License-Identifier: Apache-2.0
// combine.h: ADD, SUB, MUL, DIV of two numbers or sixteen pairs, with a fused activation.
// Maths    as elementwise.cl
// Defines  T, common/types.h, common/quant.h (required, before inclusion)
// Gives    ADD, SUB, MUL: numbers of operations, all others are DIV; combine, combine16
//          8-bit T: combined_by_floats16: the same by float32 arithmetic, for numbers that give the same integers for all pairs of bytes
//          (byte_pairs.py); bounds are to be applied

#define DO_ADD 0
#define DO_SUB 1
#define DO_MUL 2

#if T_IS_FLOAT

#define COMBINE(V, SUFFIX)                                                                                             \
    static inline V combine##SUFFIX(V a, V b, int operation, V low, V high, int left_shift, int4 zeros, int2 factor0,  \
        int2 factor1, int2 factor_out)                                                                                 \
    {                                                                                                                  \
        const V y = operation == DO_ADD ? a + b : operation == DO_SUB ? a - b : operation == DO_MUL ? a * b : a / b;            \
        return y < low ? low : y > high ? high : y;                                                                    \
    }

#elif TYPE_NUMBER == TYPE_NUMBER_int

// Divisors 0 and -1 are replaced: the former has no quotient, the latter overflows at the smallest int.
#define COMBINE(V, SUFFIX)                                                                                             \
    static inline V combine##SUFFIX(V a, V b, int operation, V low, V high, int left_shift, int4 zeros, int2 factor0,  \
        int2 factor1, int2 factor_out)                                                                                 \
    {                                                                                                                  \
        if (operation == DO_ADD)                                                                                          \
            return as_##V(as_u##V(a) + as_u##V(b));                                                                    \
        if (operation == DO_SUB)                                                                                          \
            return as_##V(as_u##V(a) - as_u##V(b));                                                                    \
        if (operation == DO_MUL)                                                                                          \
            return as_##V(as_u##V(a) * as_u##V(b));                                                                    \
        const V divisor = b == 0 || b == -1 ? (V)1 : b;                                                                \
        const V quotient = a / divisor;                                                                                \
        const V rest = a - quotient * divisor;                                                                         \
        const V floored = rest != 0 && (rest ^ divisor) < 0 ? quotient - 1 : quotient;                                 \
        return b == 0 ? (V)0 : b == -1 ? as_##V((u##V)0 - as_u##V(a)) : floored;                                       \
    }

#else

#define COMBINE(V, SUFFIX)                                                                                             \
    static inline V combine##SUFFIX(V a, V b, int operation, V low, V high, int left_shift, int4 zeros, int2 factor0,  \
        int2 factor1, int2 factor_out)                                                                                 \
    {                                                                                                                  \
        V real;                                                                                                        \
        a -= zeros.x;                                                                                                  \
        b -= zeros.y;                                                                                                  \
        if (operation == DO_MUL) {                                                                                        \
            real = a * b;                                                                                              \
        } else {                                                                                                       \
            a = multiply_by_quantized_multiplier##SUFFIX(a << left_shift, (V)factor0.x, (V)factor0.y);                 \
            b = multiply_by_quantized_multiplier##SUFFIX(b << left_shift, (V)factor1.x, (V)factor1.y);                 \
            real = operation == DO_ADD ? a + b : a - b;                                                                   \
        }                                                                                                              \
        real = multiply_by_quantized_multiplier##SUFFIX(real, (V)factor_out.x, (V)factor_out.y);                       \
        return min(max(real, low), high) + zeros.z;                                                                    \
    }

#endif

#if T_IS_FLOAT
COMBINE(float, )
COMBINE(float16, 16)
#else
COMBINE(int, )
COMBINE(int16, 16)
#endif

#if !T_IS_FLOAT
// To the nearest integer, ties to even; |x| < 2^22: adding 1.5 * 2^23 rounds, and leaves the integer in the lower bits.
static inline int16 nearest_integer16(float16 x)
{
    return as_int16(x + 12582912.0f) - 0x4b400000;
}

// b: as stored, its zero point is part of the offset, as that of the result is
static inline int16 added_by_floats16(int16 a, int16 b, float factor0, float factor1, float offset)
{
    return nearest_integer16(fma(WIDEN(a, float16), (float16)factor0, fma(WIDEN(b, float16), (float16)factor1, (float16)offset)));
}

// b: centred, too; below, above: what negative products and others add, about a half
static inline int16 multiplied_by_floats16(int16 a, int16 b, float factor, float below, float above, int zero)
{
    const int16 product = a * b;
    return WIDEN(fma(WIDEN(product, float16), (float16)factor, product < 0 ? (float16)below : (float16)above), int16) + zero;
}

// a: centred; reals: two factors, an offset; of products a factor, what negative ones add, what others do
static inline int16 combined_by_floats16(int16 a, int16 b, int operation, int4 zeros, float4 reals)
{
    return operation == DO_MUL ? multiplied_by_floats16(a, b - zeros.y, reals.x, reals.y, reals.z, zeros.z)
                               : added_by_floats16(a, b, reals.x, reals.y, reals.z);
}
#endif

// SPDX-License-Identifier: Apache-2.0
// quantize.h: sixteen real numbers to 8-bit ones and back.
// Maths    quantize16:   q = clamp(round(x / scale) + zero_point), ties away from zero, NaN: the smallest q
//          dequantize16: x = scale * (q - zero_point)
// Units    inverse: float32 of 1 / scale; least: the smallest q
// Exact    yes: the quotient is rounded to float32 as IEEE 754 says, whatever the device's own division does

// Two Newton steps with exact remainders round the quotient correctly; beyond 1024 every quotient saturates.
static inline int16 quantize16(float16 x, float scale, float inverse, int zero_point, int least)
{
    const float16 first = x * inverse;
    const float16 second = fma(fma(-first, (float16)scale, x), (float16)inverse, first);
    float16 quotient = fma(fma(-second, (float16)scale, x), (float16)inverse, second);
    quotient = fabs(first) < 1024.0f ? quotient : first > 0.0f ? (float16)1024.0f : (float16)-1024.0f;
    int16 whole = WIDEN(quotient, int16);
    const float16 fraction = quotient - WIDEN(whole, float16);
    whole += WIDEN(fraction * 2.0f, int16); // -1, 0 or 1
    return min(max(whole + zero_point, (int16)least), (int16)(least + 255));
}

static inline float16 dequantize16(int16 q, float scale, int zero_point)
{
    return scale * WIDEN(q - zero_point, float16);
}

// SPDX-License-Identifier: Apache-2.0
// logarithm.h: the natural logarithm of sixteen numbers, in instructions that every CPU has as vectors.
// Gives    log_16(x)
// Exact    1 ulp; numbers below 2^-126 count as 0, whose logarithm is -infinity; of negative ones it is NaN
// Source   x = 2^n (1 + r) with sqrt(1/2) <= 1 + r < sqrt(2); for (log(1 + r) - r + r^2 / 2) / r^3 the polynomial of degree 7 with the least
//          error in log(1 + r), 5.8e-9 of it; ln 2 in two parts, of which the first has few bits, so that n times it is exact.

static inline float16 log_16(float16 x)
{
    const int16 bits = as_int16(x), exponent = (bits - 0x3f3504f3) >> 23; // sqrt(1/2)
    const float16 n = WIDEN(exponent, float16), r = as_float16(bits - (exponent << 23)) - 1.0f, square = r * r;
    float16 p = r * -7.6344299072e-2f + 1.2761550360e-1f;
    p = p * r - 1.3160195053e-1f;
    p = p * r + 1.4201762467e-1f;
    p = p * r - 1.6623356479e-1f;
    p = p * r + 2.0001226667e-1f;
    p = p * r - 2.5000821056e-1f;
    p = p * r + 3.3333331710e-1f;
    const float16 y = (r + (p * r * square - n * 2.12194440e-4f - 0.5f * square)) + n * 0.693359375f;
    const float16 none = fabs(x) < FLT_MIN ? (float16)-INFINITY : (float16)NAN;
    return x >= FLT_MIN ? (x < INFINITY ? y : x) : none;
}

// SPDX-License-Identifier: Apache-2.0
// sine.h: the sine of sixteen angles, in instructions that every CPU has as vectors.
// Gives    sine_16(x); MOST_ANGLE: the greatest |x| that it takes
// Exact    3 ulp
// Source   x = n pi + r with |r| <= pi / 2; pi in four parts, of which the first three have few bits, so that n times each is exact; for
//          (sin r - r) / r^3 the polynomial of degree 3 in r^2 with the least relative error of the sine, 6.1e-9.

#define MOST_ANGLE 8192.0f
#define WHOLE 12582912.0f // 1.5 * 2^23: a sum with it is rounded to an integer, which its last bits are

static inline float16 sine_16(float16 x)
{
    const float16 whole = x * 0.318309886f + WHOLE, n = whole - WHOLE;
    const float16 r = ((x - n * 3.140625f) - n * 9.67502593994140625e-4f) - n * 1.509906724095e-7f - n * 5.126688136514e-12f, square = r * r;
    float16 p = square * 2.6055888611e-6f - 1.9809520745e-4f;
    p = p * square + 8.3330655470e-3f;
    p = p * square - 1.6666659713e-1f;
    return as_float16(as_int16(r + r * square * p) ^ (as_int16(whole) << 31)); // the odd half-turns are negative
}

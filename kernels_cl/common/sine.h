// SPDX-License-Identifier: Apache-2.0
// sine.h: the sine of sixteen angles, in instructions that every CPU has as vectors.
// Gives    sine(x); sine_16(x), with MOST_ANGLE: the greatest |x| that it takes
// Exact    3 ulp; larger angles as OpenCL's sin
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

// Large ones are done one by one: PoCL 3.0's sin of a vector is wrong for small elements beside one of 1e7 and more.
static inline float16 sine(float16 x)
{
    const int16 is_large = !(fabs(x) <= MOST_ANGLE);
    float16 y = sine_16(select(x, (float16)0.0f, is_large));
    if (any(is_large)) {
        float angles[16], sines[16];
        vstore16(x, 0, angles);
        vstore16(y, 0, sines);
        for (int k = 0; k < 16; ++k)
            if (!(fabs(angles[k]) <= MOST_ANGLE))
                sines[k] = sin(angles[k]);
        y = vload16(0, sines);
    }
    return y;
}

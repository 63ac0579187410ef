// SPDX-License-Identifier: Apache-2.0
// exponential.h: exp and its relatives of sixteen numbers, in instructions that every CPU has as vectors.
// Gives    exp_16(x): e^x; exp_below_zero16(x): e^x for x <= 0; expm1_16(x): e^x - 1; tanh_16(x), logistic_16(x) = 1 / (1 + e^-x)
// Exact    exp_16, expm1_16: 2 ulp, also where the result is small; tanh_16, logistic_16: 4 ulp; NaN stays NaN, results beyond the
//          range become 0 or infinity, of exp_below_zero16 and logistic_16 those below 2^-126 become 0
// Source   Cody and Waite's reduction x = n ln 2 + r with |r| <= ln 2 / 2, Taylor's series of e^r - 1 with coefficients fitted.

#define ROUNDING 12582912.0f // 1.5 * 2^23: a sum with it is rounded to an integer, which its last bits are

static inline float16 between16(float16 x, float least, float greatest) // NaN stays
{
    x = x < least ? (float16)least : x;
    return x > greatest ? (float16)greatest : x;
}

static inline float16 rest16(float16 x, float16 n)
{
    return (x - n * 0.693359375f) + n * 2.12194440e-4f;
}

// n of the reduction of numbers from `least` to 89, which others become, at most 128; and r in *rest.
static inline float16 reduced16(float16 x, float least, float16 *rest)
{
    x = between16(x, least, 89.0f);
    const float16 n = (x * 1.44269504f + ROUNDING) - ROUNDING;
    *rest = rest16(x, n);
    return n;
}

// 2^n, in place of n: of numbers from -88.2, whose n is -127 and 2^n 0, to 89.
static inline float16 power_of_reduced16(float16 x, float16 *rest)
{
    const float16 biased = x * 1.44269504f + (ROUNDING + 127.0f); // its last bits are the exponent of 2^n
    *rest = rest16(x, biased - (ROUNDING + 127.0f));
    return as_float16(as_int16(biased) << 23);
}

// e^r - 1 for |r| <= ln 2 / 2.
static inline float16 near_zero16(float16 r)
{
    float16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}

// 2^n for an integer n in [-126, 127], infinity for 128.
static inline float16 power_of_two16(int16 n)
{
    return as_float16((n + 127) << 23);
}

static inline float16 exp_16(float16 x)
{
    float16 r;
    const int16 n = WIDEN(reduced16(x, -104.0f, &r), int16), first = n >> 1;
    return (near_zero16(r) + 1.0f) * power_of_two16(first) * power_of_two16(n - first);
}

// e^x for x <= 0, in fewer instructions: what is below 2^-126 becomes 0.
static inline float16 exp_below_zero16(float16 x)
{
    float16 r;
    const float16 power = power_of_reduced16(x < -88.2f ? (float16)-88.2f : x, &r);
    return (near_zero16(r) + 1.0f) * power;
}

static inline float16 expm1_16(float16 x)
{
    float16 r;
    const int16 n = max(WIDEN(reduced16(x, -104.0f, &r), int16), (int16)-30);
    const float16 scale = power_of_two16(n - 1);
    return 2.0f * (near_zero16(r) * scale + (scale - 0.5f));
}

static inline float16 tanh_16(float16 x)
{
    const float16 size = fabs(x), e = expm1_16(-2.0f * size);
    return copysign(-e / (e + 2.0f), x);
}

static inline float16 logistic_16(float16 x)
{
    float16 r; // e^-x beside 1 need not be exact where it is small: no exponents below -126
    const float16 power = power_of_reduced16(between16(-x, -87.0f, 89.0f), &r);
    return 1.0f / (1.0f + (near_zero16(r) + 1.0f) * power);
}

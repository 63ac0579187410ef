// SPDX-License-Identifier: Apache-2.0
// exponential.h: exp and its relatives of sixteen numbers, in instructions that every CPU has as vectors.
// Gives    exp_16(x): e^x; exp_below_zero16(x): e^x for x <= 0; expm1_16(x): e^x - 1; tanh_16(x), logistic_16(x) = 1 / (1 + e^-x),
//          gated_16(x, y) = x / (1 + e^-y)
// Exact    expm1_16: 2 ulp, also where the result is small; exp_16: 3 ulp; tanh_16: 4 ulp; logistic_16, gated_16: 4 ulp for |x| < 10,
//          7 beyond; NaN stays NaN, results beyond the range become 0 or infinity, of exp_below_zero16 and logistic_16 those below
//          2^-126 become 0
// Source   Cody and Waite's reduction x = n ln 2 + r with |r| <= ln 2 / 2; for e^r the polynomial of degree 5 with the least relative
//          error, 9.2e-8; for e^r - 1 Taylor's series, coefficients fitted.

#define ROUNDING 12582912.0f // 1.5 * 2^23: a sum with it is rounded to an integer, which its last bits are
#define BIASED_ROUNDING (ROUNDING + 127.0f) // with it, the last bits of a sum with n are the exponent of 2^n

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

// e^r for |r| <= ln 2 / 2.
static inline float16 exp_of_rest16(float16 r)
{
    float16 p = r * 8.29027221e-3f + 4.18981612e-2f;
    p = p * r + 1.66676387e-1f;
    p = p * r + 4.99991477e-1f;
    p = p * r + 9.99999702e-1f;
    return p * r + 1.0f;
}

// 2^n for an integer n in [-126, 127], infinity for 128.
static inline float16 power_of_two16(int16 n)
{
    return as_float16((n + 127) << 23);
}

// 2^n of the sum of n and BIASED_ROUNDING, for n from -127, whose 2^n is 0, to 128.
static inline float16 power_of_biased16(float16 biased)
{
    return as_float16(as_int16(biased) << 23);
}

static inline float16 exp_16(float16 x)
{
    float16 r;
    const int16 n = WIDEN(reduced16(x, -104.0f, &r), int16), first = n >> 1;
    return exp_of_rest16(r) * power_of_two16(first) * power_of_two16(n - first);
}

// e^x for x <= 0, in fewer instructions: what is below 2^-126 becomes 0.
static inline float16 exp_below_zero16(float16 x)
{
    x = x < -88.2f ? (float16)-88.2f : x; // whose n is -127 and 2^n 0
    const float16 biased = x * 1.44269504f + BIASED_ROUNDING, n = biased - BIASED_ROUNDING;
    return exp_of_rest16(rest16(x, n)) * power_of_biased16(biased);
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

// 1 + e^-x. Beside 1, e^-x need not be exact where it is small: no exponents below -126.
static inline float16 one_and_exp_of_negative16(float16 x)
{
    x = between16(x, -89.0f, 87.0f);
    const float16 biased = x * -1.44269504f + BIASED_ROUNDING, n = biased - BIASED_ROUNDING;
    const float16 r = fma(n, (float16)-0.693147181f, -x); // ln 2 in one part: 2e-9 off for each n
    return exp_of_rest16(r) * power_of_biased16(biased) + 1.0f;
}

static inline float16 logistic_16(float16 x)
{
    return 1.0f / one_and_exp_of_negative16(x);
}

static inline float16 gated_16(float16 x, float16 gate)
{
    return x / one_and_exp_of_negative16(gate);
}

// SPDX-License-Identifier: Apache-2.0
// power.h: x^y of real numbers.
// Defines  GROUP: work-items of a group (required, before inclusion)
// Gives    power_of(x, y), power_of16(x, y)
// Exact    1 ulp where power_of16 computes in double precision, as pow (16 ulp) elsewhere
// Numbers  those below the least normal one count as zeros of their sign, as they do in other arithmetic (-cl-denorms-are-zero): PoCL 3.0's
//          pow, told so, takes them for other numbers (1e-40^2 is 1.9e-4)
// Source   |x| = 2^n m with sqrt(1/2) <= m < sqrt(2), log2 m = 2 / ln 2 artanh t with t = (m - 1) / (m + 1); x^y = 2^w 2^f with a whole w
//          and |f| <= 1/2. Both series end where what is left is below 1e-8 of the result.

static inline float power_of(float x, float y)
{
    return pow(fabs(x) < FLT_MIN ? copysign(0.0f, x) : x, y);
}

#if GROUP == 1 && defined(cl_khr_fp64) && !defined(__INTEL_LLVM_COMPILER) // CPUs; Intel's pow is as fast
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define WHOLE_DOUBLE 6755399441055744.0 // 1.5 * 2^52: a sum with it is rounded to an integer

// log2 |x| of normal numbers.
static inline double8 binary_logarithm(float8 x)
{
    const int8 bits = as_int8(fabs(x)), exponent = (bits - 0x3f3504f3) >> 23; // sqrt(1/2)
    const double8 m = WIDEN(as_float8(bits - (exponent << 23)), double8), t = (m - 1.0) / (m + 1.0), square = t * t;
    double8 p = square * 0.22195308321368667 + 0.2623081892525388;
    p = p * square + 0.3205988979753252;
    p = p * square + 0.4121985831111324;
    p = p * square + 0.5770780163555853;
    p = p * square + 0.9617966939259756;
    p = p * square + 2.8853900817779268;
    return WIDEN(exponent, double8) + t * p;
}

static inline float8 power_of_two(double8 x)
{
    const double8 whole = (x + WHOLE_DOUBLE) - WHOLE_DOUBLE, f = x - whole;
    double8 p = f * 1.5252733804059838e-05 + 0.00015403530393381606;
    p = p * f + 0.0013333558146428441;
    p = p * f + 0.009618129107628477;
    p = p * f + 0.055504108664821576;
    p = p * f + 0.2402265069591007;
    p = p * f + 0.6931471805599453;
    p = p * f + 1.0;
    return WIDEN(p, float8) * as_float8((WIDEN(whole, int8) + 127) << 23);
}

// Where x or the result is no normal number, or y has no place for a fraction, one by one.
static inline float16 power_of16(float16 x, float16 y)
{
    const double8 low = binary_logarithm(x.lo) * WIDEN(y.lo, double8), high = binary_logarithm(x.hi) * WIDEN(y.hi, double8);
    const float16 exponent = (float16)(WIDEN(low, float8), WIDEN(high, float8));
    const int16 is_regular = fabs(x) >= FLT_MIN && fabs(x) < INFINITY && fabs(exponent) < 126.0f && fabs(y) < 8388608.0f;
    const float16 magnitude = (float16)(power_of_two(low), power_of_two(high));
    const int16 is_odd = WIDEN(y, int16) << 31;
    float16 result = x > 0.0f ? magnitude : y == rint(y) ? as_float16(as_int16(magnitude) ^ is_odd) : (float16)NAN;
    if (!all(is_regular)) {
        float bases[16], exponents[16], powers[16];
        int regular[16];
        vstore16(x, 0, bases);
        vstore16(y, 0, exponents);
        vstore16(result, 0, powers);
        vstore16(is_regular, 0, regular);
        for (int k = 0; k < 16; ++k)
            if (!regular[k])
                powers[k] = power_of(bases[k], exponents[k]);
        result = vload16(0, powers);
    }
    return result;
}
#else
static inline float16 power_of16(float16 x, float16 y)
{
    return pow(fabs(x) < FLT_MIN ? copysign((float16)0.0f, x) : x, y);
}
#endif

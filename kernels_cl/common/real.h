// SPDX-License-Identifier: Apache-2.0
// real.h: float32 arithmetic with the host's bits, for operations that compute on dequantised numbers.
// Every operation is rounded by itself: nothing is contracted, quotients are correct whatever the device's own division does.
// Gives    divide(a, b), quantized(x, scale, zero): round(x / scale) + zero, ties away from zero; NaN becomes INT_MIN
#pragma OPENCL FP_CONTRACT OFF

static inline float divide(float a, float b)
{
    const float quotient = a / b;
    const float refined = quotient + fma(-quotient, b, a) / b;
    return isfinite(refined) ? refined : quotient;
}

static inline int quantized(float x, float scale, int zero)
{
    const float q = round(divide(x, scale)) + (float)zero;
    return x != x ? -2147483647 - 1 : (int)clamp(q, -1000000.0f, 1000000.0f);
}

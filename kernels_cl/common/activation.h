// SPDX-License-Identifier: Apache-2.0
// activation.h: fused activations as two bounds.
// float: NONE -INFINITY..INFINITY, RELU 0..INFINITY, RELU1 -1..1, RELU6 0..6; NaN stays NaN, a zero may change its sign.
// quantised: bounds are the real ones quantised with the output's scale and zero point, cut to the range of T.

// fmin and fmax, which do not keep NaN, are an instruction each on GPUs, a comparison that does is two.
static inline float activate(float x, float low, float high)
{
    return isnan(x) ? x : fmin(fmax(x, low), high);
}

static inline float16 activate16(float16 x, float low, float high)
{
    x = x < low ? (float16)low : x;
    return x > high ? (float16)high : x;
}

static inline int activate_int(int x, int low, int high)
{
    return min(max(x, low), high);
}

static inline int16 activate_int16(int16 x, int low, int high)
{
    return min(max(x, (int16)low), (int16)high);
}

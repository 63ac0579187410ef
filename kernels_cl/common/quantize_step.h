// SPDX-License-Identifier: Apache-2.0
// quantize_step.h: QUANTIZE and DEQUANTIZE as steps of chain.cl, where networks of bytes take and give real numbers.
// Maths    quantize.h
// Tensors  quantize_rows: src [batches * out_height * out_width, depth_out] of float, dst of T; dequantize_rows: the other way round
// Units    factor_product: the scale; factor_residual: float32 of 1 / scale; zero_out, zero_in: the zero point
// Exact    yes, for scales from 2^-80 to 2^80: whatever is less than normal is 0
#define LEAST_BYTE ((T)-1 < 0 ? -128 : 0)

static inline void quantize_rows(const Step *s, Part part, global const float *src, global T *dst)
{
    const int end = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width) * s->depth_out;
    const float scale = s->factor_product, inverse = s->factor_residual;
    const int zero_point = s->zero_out;
    int i = part.x0 * s->unit_pixels * s->depth_out;
    for (; i + 16 <= end; i += 16)
        STORE16(dst, i, quantize16(vload16(0, src + i), scale, inverse, zero_point, LEAST_BYTE));
    if (i < end) {
        float lanes[16];
        for (int k = 0; k < 16; ++k)
            lanes[k] = src[min(i + k, end - 1)];
        store_lanes(dst, i, quantize16(vload16(0, lanes), scale, inverse, zero_point, LEAST_BYTE), end - i);
    }
}

static inline void dequantize_rows(const Step *s, Part part, global const T *src, global float *dst)
{
    const int end = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width) * s->depth_out;
    const float scale = s->factor_product;
    const int zero_point = s->zero_in;
    int i = part.x0 * s->unit_pixels * s->depth_out;
    for (; i + 16 <= end; i += 16)
        vstore16(dequantize16(LOAD16(src, i), scale, zero_point), 0, dst + i);
    for (; i < end; ++i)
        dst[i] = scale * (float)(src[i] - zero_point);
}

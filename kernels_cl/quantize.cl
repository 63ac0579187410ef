// SPDX-License-Identifier: Apache-2.0
// quantize.cl: QUANTIZE, DEQUANTIZE between real numbers and 8-bit ones.
// Maths    quantize, dequantize: common/quantize.h
//          dequantize_per_channel: x = scales[c] * q, c = index / inner % channels
// Tensors  src and dst: count elements, of T and Q or the other way round; scales float [channels]
// Units    inverse: float32 of 1 / scale; per_item: vectors that a work-item computes; inner: elements behind one channel index
// Defines  T: float | half (required): the real numbers
//          Q: uchar | char (required): the 8-bit ones
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   quantize, dequantize: global (>= ceil(ceil(count / 16) / per_item)), local (GROUP)
//          dequantize_per_channel: global (>= count), local (64); one work-item per element
//          extra items return
// Exact    yes
#ifndef T
#error "quantize.cl: define T"
#endif
#ifndef Q
#error "quantize.cl: define Q"
#endif

#include "common/types.h"
#include "common/quantize.h"

typedef JOIN(Q, 16) Q16;
typedef struct __attribute__((packed)) {
    Q16 value;
} UnalignedQ16;

#define LEAST ((Q)-1 < 0 ? -128 : 0)

VECTOR_KERNEL void quantize(global const T *src, global Q *dst, float scale, float inverse, int zero_point, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item * 16;
    const int last = min(first + per_item * 16, count);
    int i = first;
    for (; i + 16 <= last; i += 16) {
        const int16 q = quantize16(LOAD16(src, i), scale, inverse, zero_point, LEAST);
        ((global UnalignedQ16 *)(dst + i))->value = WIDEN(q, Q16);
    }
    for (; i < last; ++i)
        dst[i] = (Q)quantize16((float16)LOAD(src, i), scale, inverse, zero_point, LEAST).s0;
}

VECTOR_KERNEL void dequantize(global const Q *src, global T *dst, float scale, int zero_point, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item * 16;
    const int last = min(first + per_item * 16, count);
    int i = first;
    for (; i + 16 <= last; i += 16) {
        const int16 q = WIDEN(((global const UnalignedQ16 *)(src + i))->value, int16);
        STORE16(dst, i, dequantize16(q, scale, zero_point));
    }
    for (; i < last; ++i)
        STORE(dst, i, scale * (float)(src[i] - zero_point));
}

kernel void dequantize_per_channel(global const Q *src, global T *dst, global const float *scales, int inner, int channels, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        STORE(dst, i, scales[i / inner % channels] * (float)src[i]);
}

// SPDX-License-Identifier: Apache-2.0
// peaks.cl: what a device can do at most: multiply-adds and moved bytes, for rooflines.
// Maths    multiply_add: CHAINS independent sums of 16, sums = sums * factor + term, `rounds` times
//          dot_product: the same with four products of bytes in each of the 16 sums (DOT4), else nothing
//          tile_product: `rounds` times two products of 16 x 64 and 64 x 16 bytes (DOT4 4), else nothing
//          copy: `rounds` times dst[i] = src[i] over the same `count` vectors of 16 floats of each work-item
// Tensors  result: float or int [items, 16]; src, dst: float [items, count, 16], INTERLEAVED: [count * 4, items, 4]
// Defines  DOT4: 0 | 1 | 2 | 3 | 4 (required); not 0: the form of common/dot4.h
//          CHAINS: vectors of sums at once
//          INTERLEAVED: 0 | 1: work-items of a group move neighbouring vectors, as GPUs want it, else each its own part
// Launch   global (items), local (1 or a multiple of 32 for GPUs)
// Exact    nobody reads the results; factor 0.5 and term 1 keep sums finite
#ifndef DOT4
#error "peaks.cl: define DOT4"
#endif

#if DOT4
#include "common/dot4.h"
#endif
#if DOT4 == 4
#include "common/amx.h"
#endif

#ifndef CHAINS
#define CHAINS 12 // so that nothing waits for a sum, and all stay in registers
#endif
#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif

kernel void multiply_add(global float *restrict result, int rounds, float factor, float term)
{
    float16 sums[CHAINS];
    for (int i = 0; i < CHAINS; ++i)
        sums[i] = (float16)(get_global_id(0) + i);
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            sums[i] = fma(sums[i], (float16)factor, (float16)term);
    for (int i = 1; i < CHAINS; ++i)
        sums[0] += sums[i];
    vstore16(sums[0], get_global_id(0), result);
}

// With DOT4 1 of words, as common/convolve_bytes.h has them.
#if DOT4 == 1
#define ADD_TWICE(sum, x, w) add_dot2(add_dot2(sum, x, w), x, w)
#define ADD_PRODUCTS(sum, x, w) (int16)(ADD_TWICE((sum).lo, (x).lo, (w).lo), ADD_TWICE((sum).hi, (x).hi, (w).hi))
#else
#define ADD_PRODUCTS(sum, x, w) dot4_16(sum, x, w)
#endif

kernel void dot_product(global int *restrict result, int rounds)
{
#if DOT4
    int16 sums[CHAINS], left = (int16)get_global_id(0), right = (int16)rounds;
    for (int i = 0; i < CHAINS; ++i)
        sums[i] = (int16)i;
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            sums[i] = ADD_PRODUCTS(sums[i], left, right);
    for (int i = 1; i < CHAINS; ++i)
        sums[0] += sums[i];
    vstore16(sums[0], get_global_id(0), result);
#endif
}

kernel void tile_product(global int *restrict result, int rounds)
{
#if DOT4 == 4
    int16 sums[2][16];
    shape_tiles(CHUNK_QUADS);
    for (int round = 0; round < rounds; ++round)
        __asm__ volatile(SIGNED_PRODUCTS " %%tmm3, %%tmm2, %%tmm0\n\t" SIGNED_PRODUCTS " %%tmm3, %%tmm2, %%tmm1" : :);
    end_tiles(sums[0], sums[1]);
    release_tiles();
    vstore16(sums[0][0], get_global_id(0), result);
#endif
}

kernel void copy(global const float *restrict src, global float *restrict dst, int count, int rounds)
{
#if INTERLEAVED
    const size_t items = get_global_size(0), item = get_global_id(0);
    for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < 4 * count; ++i)
            vstore4(vload4(i * items + item, src), i * items + item, dst);
#else
    global const float *from = src + (size_t)get_global_id(0) * count * 16;
    global float *to = dst + (size_t)get_global_id(0) * count * 16;
    for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < count; ++i)
            vstore16(vload16(i, from), i, to);
#endif
}

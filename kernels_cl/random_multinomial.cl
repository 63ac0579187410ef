// SPDX-License-Identifier: Apache-2.0
// random_multinomial.cl: RANDOM_MULTINOMIAL: classes drawn by the softmax of each row's logits.
// Maths    sums[b,c] = sum over i <= c of exp(x[b,i] - greatest finite x), 0 for infinities and NaN
//          y[b,s] = the first c with sums[b,c] > u * sums[b,last]; u: 52 random bits of words 2n, 2n + 1, n = b * samples + s
//          words: Philox 4x32-10, key `seed`, counter (n / 2, seed2); Salmon et al., Parallel random numbers, 2011
// Tensors  src of T [batches, classes]; sums REAL [batches, classes]; seeds int [2], both 0: `fresh` takes their place
//          dst int [batches, samples]
// Defines  T: float | half (required); REAL: float | double (required; double needs cl_khr_fp64)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   sum_exponentials: global (GROUP, batches), local (GROUP, 1); one group per row
//          random_multinomial: global (>= count), count = batches * samples, local (64); extra items return
// Exact    the random words are; with double nearly all draws are those of the host
#ifndef T
#error "random_multinomial.cl: define T"
#endif
#ifndef REAL
#error "random_multinomial.cl: define REAL"
#endif

#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#include "common/types.h"

static inline REAL exponential(float logit, float greatest)
{
    return isfinite(logit) ? exp((REAL)logit - (REAL)greatest) : (REAL)0;
}

VECTOR_KERNEL void sum_exponentials(global const T *src, global REAL *sums, int classes)
{
    local REAL shared[GROUP];
    const int b = (int)get_global_id(1), item = (int)get_local_id(0), part = (classes + GROUP - 1) / GROUP;
    const int from = b * classes + min(item * part, classes), to = b * classes + min((item + 1) * part, classes);
    float greatest = -FLT_MAX;
    for (int i = from; i < to; ++i) {
        const float logit = LOAD(src, i);
        greatest = isfinite(logit) ? fmax(greatest, logit) : greatest;
    }
    shared[item] = greatest;
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < GROUP; ++i)
        greatest = fmax(greatest, (float)shared[i]);
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
    REAL sum = 0;
    for (int i = from; GROUP > 1 && i < to; ++i)
        sum += exponential(LOAD(src, i), greatest);
    shared[item] = sum;
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
    sum = 0;
    for (int i = 0; i < item; ++i)
        sum += shared[i];
    for (int i = from; i < to; ++i) {
        sum += exponential(LOAD(src, i), greatest);
        sums[i] = sum;
    }
}

// The random words of a block of the counter.
static inline uint4 philox(ulong block, ulong key, ulong seed2)
{
    uint4 words = (uint4)((uint)block, (uint)(block >> 32), (uint)seed2, (uint)(seed2 >> 32));
    uint2 round_key = (uint2)((uint)key, (uint)(key >> 32));
    for (int round = 0; round < 10; ++round) {
        const uint high0 = mul_hi(words.x, 0xD2511F53u), low0 = words.x * 0xD2511F53u;
        const uint high1 = mul_hi(words.z, 0xCD9E8D57u), low1 = words.z * 0xCD9E8D57u;
        words = (uint4)(high1 ^ words.y ^ round_key.x, low1, high0 ^ words.w ^ round_key.y, low0);
        round_key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
    }
    return words;
}

kernel void random_multinomial(
    global const REAL *sums, global const int *seeds, global int *dst, ulong2 fresh, int classes, int samples, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int given = seeds[0] != 0 || seeds[1] != 0;
    const uint4 words = philox((ulong)(item / 2), given ? (ulong)(long)seeds[0] : fresh.x, given ? (ulong)(long)seeds[1] : fresh.y);
    const uint2 pair = item % 2 ? words.zw : words.xy;
    const ulong mantissa = (ulong)(pair.x & 0xFFFFFu) << 32 | pair.y;
    const int row = item / samples * classes;
    const REAL target = (REAL)mantissa / (REAL)(1UL << 52) * sums[row + classes - 1];
    int low = 0, high = classes - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (sums[row + middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    dst[item] = low;
}

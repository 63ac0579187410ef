// SPDX-License-Identifier: Apache-2.0
// peaks_units.cl: what the matrix units of NVIDIA's GPUs can do at most, on words in registers; peaks.cl has all else.
// Maths    unit_product: `rounds` times, for each of CHAINS independent blocks of sums, sums += left * right of common/mma.h
// Tensors  result: float (float, half) or int [items, 4]
// Defines  T, FILTER_T, MATRIX_UNITS: as common/mma.h says (required)
//          CHAINS: blocks of sums at once
// Launch   global (items), local (ITEMS); a warp multiplies CHAINS blocks of 16 rows, 8 columns, 32 bytes of terms in a round
// Exact    nobody reads the results; floats and halves are 1, so that sums stay finite
#include "common/mma.h"

#ifndef CHAINS
#define CHAINS 8 // so that no instruction waits for the sums of the one before
#endif
#define ITEMS 64

#if T_IS_HALF
#define ONES 0x3c003c00u
#elif T_IS_FLOAT
#define ONES 0x3f800000u
#else
#define ONES 0x01010101u
#endif

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void unit_product(global Sums *restrict result, int rounds)
{
    local uint exchange[EXCHANGE_WORDS(ITEMS)];
    const uint4 left = (uint4)(ONES);
    const uint2 right = (uint2)(ONES);
    Sums sums[CHAINS];
    for (int i = 0; i < CHAINS; ++i)
        sums[i] = (Sums)(i);
#if BY_PARTS
    Sums rests[CHAINS];
    for (int i = 0; i < CHAINS; ++i)
        rests[i] = (Sums)(i);
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            multiply_add_parts(left, right, sums + i, rests + i, exchange);
    for (int i = 0; i < CHAINS; ++i)
        sums[i] += rests[i];
#else
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            sums[i] = multiply_add(left, right, sums[i], exchange);
#endif
    for (int i = 1; i < CHAINS; ++i)
        sums[0] += sums[i];
    result[get_global_id(0)] = sums[0];
}

// SPDX-License-Identifier: Apache-2.0
// mma.h: the matrix instruction of NVIDIA's GPUs: 32 work-items multiply 16 rows by 8 columns of so many terms as 32 bytes hold.
// Maths    sums[row, column] += sum over terms of left[row, term] * right[column, term]
// Defines  T, FILTER_T: half and half, or uchar | char each: elements of left, of right (required)
//          MATRIX_UNITS: 75 | 80: by PTX for devices of that compute capability and later; 0: the same in plain OpenCL C, with
//          which all that is around it can be tried on any device (required)
// Gives    Sums: four sums of a work-item, float4 (half) or int4; multiply_add: the instruction; sum_of_bytes: of four words
//          EXCHANGE_WORDS(items): words of local memory that a group of so many work-items gives to multiply_add
//          WARP: 32; functions that call it must be INLINE
// Launch   a warp is 32 work-items with neighbouring local ids; all of a group call multiply_add together
// Layout   lane = 4 * g + t of a warp; an element's place in a word is by its term, P = 2 (half) or 4 of them in a word
//          left   words x, y, z, w: rows g, g + 8, g, g + 8; terms t * P, t * P, (t + 4) * P, (t + 4) * P and the next
//          right  words x, y: column g; terms t * P, (t + 4) * P and the next
//          sums   x, y, z, w: rows g, g, g + 8, g + 8; columns 2 * t, 2 * t + 1, 2 * t, 2 * t + 1
// Exact    8-bit: yes, int wraps; half: products are exact, sums are float, how they are rounded is the hardware's affair
// Source   PTX ISA, matrix fragments of mma.m16n8k16 (f16), m16n8k32 (s8, u8), and m16n8k8, m8n8k16 of capability 7.5, of which
//          two and four make the same
#ifndef FILTER_T
#error "mma.h: define FILTER_T"
#endif
#ifndef MATRIX_UNITS
#error "mma.h: define MATRIX_UNITS"
#endif

#include "common/types.h"

#define WARP 32

#define PTX_half "f16"
#define PTX_uchar "u8"
#define PTX_char "s8"
#define OPERANDS "." JOIN(PTX_, T) "." JOIN(PTX_, FILTER_T)

#if T_IS_HALF
typedef float4 Sums;
#define SUM_T float
#define WORD_TERMS 2
#define INTO(v) "+f"(v)
#define SUM_TYPE "f32"
#else
typedef int4 Sums;
#define SUM_T int
#define WORD_TERMS 4
#define INTO(v) "+r"(v)
#define SUM_TYPE "s32"
#endif

#if MATRIX_UNITS
#define EXCHANGE_WORDS(items) 1
#else
#define EXCHANGE_WORDS(items) (6 * (items))
#endif

#if MATRIX_UNITS >= 80
#if T_IS_HALF
#define SHAPE "m16n8k16"
#else
#define SHAPE "m16n8k32"
#endif

static INLINE Sums multiply_add(uint4 left, uint2 right, Sums sums, local uint *exchange)
{
    SUM_T x = sums.x, y = sums.y, z = sums.z, w = sums.w;
    __asm__ volatile("mma.sync.aligned." SHAPE ".row.col." SUM_TYPE OPERANDS "." SUM_TYPE
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : INTO(x), INTO(y), INTO(z), INTO(w)
                     : "r"(left.x), "r"(left.y), "r"(left.z), "r"(left.w), "r"(right.x), "r"(right.y));
    return (Sums)(x, y, z, w);
}

#elif MATRIX_UNITS >= 75
#if T_IS_HALF
static inline Sums multiply_add_half_the_terms(uint2 left, uint right, Sums sums)
{
    SUM_T x = sums.x, y = sums.y, z = sums.z, w = sums.w;
    __asm__ volatile("mma.sync.aligned.m16n8k8.row.col." SUM_TYPE OPERANDS "." SUM_TYPE
                     " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : INTO(x), INTO(y), INTO(z), INTO(w)
                     : "r"(left.x), "r"(left.y), "r"(right));
    return (Sums)(x, y, z, w);
}
#else
static inline int2 multiply_add_eight_rows(uint left, uint right, int2 sums)
{
    SUM_T x = sums.x, y = sums.y;
    __asm__ volatile("mma.sync.aligned.m8n8k16.row.col." SUM_TYPE OPERANDS "." SUM_TYPE " {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : INTO(x), INTO(y)
                     : "r"(left), "r"(right));
    return (int2)(x, y);
}

static inline Sums multiply_add_half_the_terms(uint2 left, uint right, Sums sums)
{
    return (Sums)(multiply_add_eight_rows(left.x, right, sums.xy), multiply_add_eight_rows(left.y, right, sums.zw));
}
#endif

static INLINE Sums multiply_add(uint4 left, uint2 right, Sums sums, local uint *exchange)
{
    sums = multiply_add_half_the_terms(left.xy, right.x, sums);
    return multiply_add_half_the_terms(left.zw, right.y, sums);
}

#else
// The word of a lane of this warp that holds the terms of one of a line's eight words.
#define WORD_OF_ROW(exchange, row, word) ((exchange) + 6 * ((row) % 8 * 4 + (word) % 4) + (row) / 8 + (word) / 4 * 2)
#define WORD_OF_COLUMN(exchange, column, word) ((exchange) + 6 * ((column) * 4 + (word) % 4) + 4 + (word) / 4)

#if T_IS_HALF
#define TERM(word, type, i) vload_half(i, (local const type *)(word))
#else
#define TERM(word, type, i) ((int)((local const type *)(word))[i])
#endif

static inline SUM_T sum_of_terms(local const uint *exchange, int row, int column, SUM_T sum)
{
    for (int word = 0; word < 8; ++word)
#pragma unroll
        for (int i = 0; i < WORD_TERMS; ++i)
            sum += TERM(WORD_OF_ROW(exchange, row, word), T, i) * TERM(WORD_OF_COLUMN(exchange, column, word), FILTER_T, i);
    return sum;
}

static INLINE Sums multiply_add(uint4 left, uint2 right, Sums sums, local uint *exchange)
{
    const int item = (int)get_local_id(0), row = item % WARP / 4, column = item % 4 * 2;
    local uint *own = exchange + 6 * item, *of_warp = exchange + 6 * (item - item % WARP);
    vstore4(left, 0, own);
    vstore2(right, 2, own);
    barrier(CLK_LOCAL_MEM_FENCE);
    sums.x = sum_of_terms(of_warp, row, column, sums.x);
    sums.y = sum_of_terms(of_warp, row, column + 1, sums.y);
    sums.z = sum_of_terms(of_warp, row + 8, column, sums.z);
    sums.w = sum_of_terms(of_warp, row + 8, column + 1, sums.w);
    barrier(CLK_LOCAL_MEM_FENCE);
    return sums;
}
#endif

#if !T_IS_HALF
// sum + the sixteen bytes of `words`, each of type T or FILTER_T as `is_signed` says.
static inline int sum_of_bytes(uint4 words, int is_signed, int sum)
{
    const uint4 bytes = is_signed ? words ^ 0x80808080u : words;
    const uint4 pairs = (bytes & 0x00ff00ffu) + (bytes >> 8 & 0x00ff00ffu);
    const uint two_sums = pairs.x + pairs.y + pairs.z + pairs.w;
    return sum + (int)((two_sums & 0xffffu) + (two_sums >> 16)) - (is_signed ? 16 * 128 : 0);
}
#endif

// SPDX-License-Identifier: Apache-2.0
// mma.h: the matrix instruction of NVIDIA's GPUs: 32 work-items multiply 16 rows by 8 columns of so many terms as 32 bytes hold.
// Maths    sums[row, column] += sum over terms of left[row, term] * right[column, term]
// Defines  T, FILTER_T: float and float, half and half, or uchar | char each: elements of left, of right (required)
//          MATRIX_UNITS: 75 | 80: by PTX for devices of that compute capability and later, float only by 80; 0: the same in plain
//          OpenCL C, with which all that is around it can be tried on any device (required)
// Gives    Sums: four sums of a work-item, float4 (float, half) or int4; multiply_add: the instruction, of float three of them
//          BY_PARTS: whether T is float; multiply_add_parts: the same, with sums of the small products apart, to be added in the end
//          copy_run, copy_half_run (8 bytes), end_of_copies, WAIT_FOR_COPIES(n): 16 bytes from device into local memory while the work-item goes on
//          EXCHANGE_WORDS(items): words of local memory that a group of so many work-items gives to multiply_add
//          WARP: 32; functions that call it must be INLINE
// Launch   a warp is 32 work-items with neighbouring local ids; all of a group call multiply_add together
// Layout   lane = 4 * g + t of a warp; an element's place in a word is by its term, P = 1 (float), 2 (half) or 4 of them in a word
//          left   words x, y, z, w: rows g, g + 8, g, g + 8; terms t * P, t * P, (t + 4) * P, (t + 4) * P and the next
//          right  words x, y: column g; terms t * P, (t + 4) * P and the next
//          sums   x, y, z, w: rows g, g, g + 8, g + 8; columns 2 * t, 2 * t + 1, 2 * t, 2 * t + 1
// Exact    8-bit: yes, int wraps; half: products are exact, sums are float, how they are rounded is the hardware's affair
//          float: each factor is the sum of two of 11 bits, one of them rounded, and three of the four products are added: a product is
//          off by 2^-21 of itself at most, a fifth of that in the mean. The units cut what they add, towards 0, so that a sum is
//          too small by half a unit in its last place for each instruction. An infinite factor, or one that rounds to
//          infinity, makes NaN
// Source   PTX ISA, matrix fragments of mma.m16n8k16 (f16), m16n8k32 (s8, u8), m16n8k8 (tf32), and m16n8k8, m8n8k16 of capability
//          7.5, of which two and four make the same; cp.async. Three products: as CUTLASS's "3xTF32" (example 27 there)
#ifndef FILTER_T
#error "mma.h: define FILTER_T"
#endif
#ifndef MATRIX_UNITS
#error "mma.h: define MATRIX_UNITS"
#endif

#include "common/types.h"

#define WARP 32
#define BY_PARTS (T_IS_FLOAT && !T_IS_HALF)

#define PTX_float "tf32"
#define PTX_half "f16"
#define PTX_uchar "u8"
#define PTX_char "s8"
#define OPERANDS "." JOIN(PTX_, T) "." JOIN(PTX_, FILTER_T)

#if T_IS_FLOAT
typedef float4 Sums;
#define SUM_T float
#define WORD_TERMS (T_IS_HALF ? 2 : 1)
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
#elif T_IS_FLOAT
#define SHAPE "m16n8k8"
#else
#define SHAPE "m16n8k32"
#endif

static INLINE Sums multiply_add_words(uint4 left, uint2 right, Sums sums)
{
    SUM_T x = sums.x, y = sums.y, z = sums.z, w = sums.w;
    __asm__ volatile("mma.sync.aligned." SHAPE ".row.col." SUM_TYPE OPERANDS "." SUM_TYPE
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : INTO(x), INTO(y), INTO(z), INTO(w)
                     : "r"(left.x), "r"(left.y), "r"(left.z), "r"(left.w), "r"(right.x), "r"(right.y));
    return (Sums)(x, y, z, w);
}

#if BY_PARTS
// The instruction reads the upper 19 bits of a word.
#define ROUNDED(words) (((words) + 0x1000u) & 0xffffe000u)

static INLINE void multiply_add_parts(uint4 left, uint2 right, Sums *sums, Sums *rests, local uint *exchange)
{
    const uint4 left_rounded = ROUNDED(left), left_rest = as_uint4(as_float4(left) - as_float4(left_rounded));
    const uint2 right_rounded = ROUNDED(right), right_rest = as_uint2(as_float2(right) - as_float2(right_rounded));
    *rests = multiply_add_words(left_rest, right_rounded, *rests);
    *rests = multiply_add_words(left_rounded, right_rest, *rests);
    *sums = multiply_add_words(left_rounded, right_rounded, *sums);
}

static INLINE Sums multiply_add(uint4 left, uint2 right, Sums sums, local uint *exchange)
{
    Sums rests = (Sums)(0);
    multiply_add_parts(left, right, &sums, &rests, exchange);
    return sums + rests;
}
#else
#define multiply_add(left, right, sums, exchange) multiply_add_words(left, right, sums)
#endif

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

#if T_IS_FLOAT
#define TERM(word, type, i) LOAD((local const type *)(word), i)
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

#if BY_PARTS
static INLINE void multiply_add_parts(uint4 left, uint2 right, Sums *sums, Sums *rests, local uint *exchange)
{
    *sums = multiply_add(left, right, *sums, exchange);
}
#endif
#endif

#if MATRIX_UNITS >= 80
// 16 bytes of device memory, zeros if there are none there, on their way into local memory.
static INLINE void copy_run(local uint4 *to, global const void *from, int is_there)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint)(size_t)to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// 8 bytes, likewise.
static INLINE void copy_half_run(local uint2 *to, global const void *from, int is_there)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((uint)(size_t)to), "l"(from), "r"(is_there ? 8 : 0) : "memory");
}

// Copies that were begun since the last call belong together.
static INLINE void end_of_copies(void)
{
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for this work-item's copies, but for those of so many last calls of end_of_copies.
#define WAIT_FOR_COPIES(n) __asm__ volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
static INLINE void copy_run(local uint4 *to, global const void *from, int is_there)
{
    *to = is_there ? *(global const uint4 *)from : (uint4)(0);
}

static INLINE void copy_half_run(local uint2 *to, global const void *from, int is_there)
{
    *to = is_there ? *(global const uint2 *)from : (uint2)(0);
}

static INLINE void end_of_copies(void)
{
}

#define WAIT_FOR_COPIES(n)
#endif

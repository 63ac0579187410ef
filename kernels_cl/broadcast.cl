// SPDX-License-Identifier: Apache-2.0
// broadcast.cl: MAXIMUM, MINIMUM, POW, PRELU, comparisons, LOGICAL_AND, LOGICAL_OR of two broadcast tensors of any rank.
// Maths    a, b: the elements; TABLES: table0[a], table1[b], whatever numbers the host wants compared or kept; TRUTHS: 0 or 1
//          compare: y = a op b; op by number: 0 ==, 1 !=, 2 >, 3 >=, 4 <, 5 <=
//          extreme: y = greatest ? max(a, b) : min(a, b); NaN wins
//          prelu:   y = a >= 0 ? a : a * b; quantised: common/prelu.h
//          power:   y = a^b (common/power.h)
//          pairs:   y = table[a][b], of bytes (common/pairs.h)
// Tensors  src0, src1 of T, dst of T (compare: uchar), dense. The output's dimensions with neighbours merged are sizes (outermost
//          first, unused 1), strides0 and strides1 those of the inputs in elements, 0 where broadcast; tables int [256] (TABLES)
//          *_rows: the innermost dimension is apart: `inner` elements, strides step0, step1 of 0 or 1
// Units    per_item: vectors, rows_per_item: rows that a work-item computes
// Defines  T: float | half | int | uchar | char (required); prelu of 8-bit types is quantised
//          TABLES: 0 | 1 (T uchar, which then stands for either sign; no prelu, no pairs)
//          TRUTHS: 0 | 1 (T uchar, of bool types: whatever is not 0 is 1; no prelu, no pairs)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   global (>= count), local (64); one work-item per element
//          *_rows: global (>= ceil(ceil(inner / 16) / per_item), ceil(rows / rows_per_item)), local (GROUP, 1)
//          neighbouring work-items may write the same value to the same element
//          extra items return
// Exact    all but power (16 ulp) and prelu of half (computed in float)
#ifndef T
#error "broadcast.cl: define T"
#endif
#ifndef TABLES
#define TABLES 0 // elements are what they are
#endif
#ifndef TRUTHS
#define TRUTHS 0 // the same
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/power.h"
#include "common/prelu.h"
#include "common/index.h"

#if TABLES
static inline int16 look_up16(global const uchar *codes, global const int *table)
{
    const uchar16 i = ((global const UnalignedT16 *)codes)->value;
    return (int16)(table[i.s0], table[i.s1], table[i.s2], table[i.s3], table[i.s4], table[i.s5], table[i.s6], table[i.s7],
        table[i.s8], table[i.s9], table[i.sa], table[i.sb], table[i.sc], table[i.sd], table[i.se], table[i.sf]);
}

#define PARAMETERS global const int *table0, global const int *table1,
#define FIRST(at) table0[src0[at]]
#define SECOND(at) table1[src1[at]]
#define FIRST16(at) look_up16(src0 + (at), table0)
#define SECOND16(at) look_up16(src1 + (at), table1)
#elif TRUTHS
#define PARAMETERS
#define FIRST(at) min(LOAD(src0, at), 1)
#define SECOND(at) min(LOAD(src1, at), 1)
#define FIRST16(at) min(LOAD16(src0, at), (int16)1)
#define SECOND16(at) min(LOAD16(src1, at), (int16)1)
#else
#define PARAMETERS
#define FIRST(at) LOAD(src0, at)
#define SECOND(at) LOAD(src1, at)
#define FIRST16(at) LOAD16(src0, at)
#define SECOND16(at) LOAD16(src1, at)
#endif

typedef struct __attribute__((packed)) {
    uchar16 value;
} UnalignedTruths;

#define STORE_TRUTH(p, i, v) ((p)[i] = (uchar)((v) & 1))
#define STORE_TRUTH16(p, i, v) (((global UnalignedTruths *)((p) + (i)))->value = WIDEN((v) & 1, uchar16))

// kernel NAME(src0, src1, dst, PARAMETERS sizes, strides0, strides1, count MORE) and NAME_rows: y = OF(type, SUFFIX, a, b); MORE: a
// macro for further arguments, which begins with a comma, or nothing.
#define PAIRWISE(NAME, D, OF, PUT, MORE)                                                                                        \
    kernel void NAME(global const T *src0, global const T *src1, global D *dst, PARAMETERS int8 sizes, int8 strides0,           \
        int8 strides1, int count MORE)                                                                                          \
    {                                                                                                                           \
        const int i = (int)get_global_id(0);                                                                                    \
        if (i >= count)                                                                                                         \
            return;                                                                                                             \
        const int2 at = offsets_in_two(i, sizes, strides0, strides1);                                                           \
        const COMPUTE_T a = FIRST(at.x), b = SECOND(at.y);                                                                      \
        PUT(dst, i, OF(COMPUTE_T, , a, b));                                                                                     \
    }                                                                                                                           \
                                                                                                                                \
    VECTOR_KERNEL void NAME##_rows(global const T *src0, global const T *src1, global D *dst, PARAMETERS int8 sizes,            \
        int8 strides0, int8 strides1, int rows, int inner, int step0, int step1, int per_item, int rows_per_item MORE)          \
    {                                                                                                                           \
        const int first = (int)get_global_id(0) * per_item * 16, last = min(first + per_item * 16, inner);                      \
        if (first >= inner)                                                                                                     \
            return;                                                                                                             \
        int row = (int)get_global_id(1) * rows_per_item;                                                                        \
        const int last_row = min(row + rows_per_item, rows);                                                                    \
        while (row < last_row) {                                                                                                \
            int2 at = offsets_in_two(row, sizes, strides0, strides1);                                                           \
            const int end = min(row + sizes.s7 - row % sizes.s7, last_row);                                                     \
            for (; row < end; ++row, at += (int2)(strides0.s7, strides1.s7)) {                                                  \
                if (inner < 16) {                                                                                               \
                    for (int i = 0; i < inner; ++i) {                                                                           \
                        const COMPUTE_T a = FIRST(at.x + i * step0), b = SECOND(at.y + i * step1);                              \
                        PUT(dst, row * inner + i, OF(COMPUTE_T, , a, b));                                                       \
                    }                                                                                                           \
                    continue;                                                                                                   \
                }                                                                                                               \
                const COMPUTE_T16 same0 = (COMPUTE_T16)FIRST(at.x), same1 = (COMPUTE_T16)SECOND(at.y);                          \
                for (int x = first; x < last; x += 16) {                                                                        \
                    const int i = min(x, inner - 16);                                                                           \
                    const COMPUTE_T16 a = step0 ? FIRST16(at.x + i) : same0;                                                    \
                    const COMPUTE_T16 b = step1 ? SECOND16(at.y + i) : same1;                                                   \
                    PUT##16(dst, row * inner + i, OF(COMPUTE_T16, 16, a, b));                                                   \
                }                                                                                                               \
            }                                                                                                                   \
        }                                                                                                                       \
    }

// Comparisons of scalars give 0 and 1, of vectors 0 and -1: the lowest bit tells.
#define COMPARED(V, SUFFIX, a, b)                                                                                               \
    (operation == 0 ? ((a) == (b))                                                                                              \
     : operation == 1 ? ((a) != (b))                                                                                            \
     : operation == 2 ? ((a) > (b))                                                                                             \
     : operation == 3 ? ((a) >= (b))                                                                                            \
     : operation == 4 ? ((a) < (b))                                                                                             \
                      : ((a) <= (b)))
#define OPERATION , int operation
PAIRWISE(compare, uchar, COMPARED, STORE_TRUTH, OPERATION)

#define EXTREME(V, SUFFIX, a, b) (greatest ? ((a) > (b) || (a) != (a) ? (a) : (b)) : ((a) < (b) || (a) != (a) ? (a) : (b)))
#define GREATEST , int greatest
PAIRWISE(extreme, T, EXTREME, STORE, GREATEST)

#if T_IS_FLOAT
#define RECTIFIED(V, SUFFIX, a, b) ((a) >= (V)0 ? (a) : (a) * (b))
PAIRWISE(prelu, T, RECTIFIED, STORE, )

#define POWER(V, SUFFIX, a, b) power_of##SUFFIX(a, b)
PAIRWISE(power, T, POWER, STORE, )
#elif TYPE_NUMBER != TYPE_NUMBER_int && !TABLES && !TRUTHS
#define RECTIFIED(V, SUFFIX, a, b) rectified##SUFFIX(a, b, zeros, factors, low, high)
#define FACTORS , int4 factors, int4 zeros, int low, int high
PAIRWISE(prelu, T, RECTIFIED, STORE, FACTORS)

#include "common/pairs.h"
#define PAIRED(V, SUFFIX, a, b) paired##SUFFIX(a, b, table)
#define TABLE , global const T *table
PAIRWISE(pairs, T, PAIRED, STORE, TABLE)
#endif

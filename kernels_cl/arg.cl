// SPDX-License-Identifier: Apache-2.0
// arg.cl: ARGMAX, ARGMIN along one axis.
// Maths    y = the least i with x[i] >= x[k] for all k; least: x[i] <= x[k]
// Tensors  src [outer, axis, inner] of T, dense row-major; dst int [outer, inner]; argmax_rows: inner = 1
// Units    rows_per_item: rows that a work-item computes
// Defines  T: float | half | uchar | char | int (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   argmax: global (>= count), count = outer * inner, local (64); one work-item per output element
//          argmax_rows: global (>= ceil(outer / rows_per_item)), local (GROUP)
//          extra items return
// Needs    argmax_rows: axis >= 16
// Exact    yes
#ifndef T
#error "arg.cl: define T"
#endif

#include "common/types.h"

// What reverses the order of all numbers without overflow.
#if T_IS_FLOAT
#define REVERSED(x) (-(x))
#else
#define REVERSED(x) (~(x))
#endif
#define ORDERED(x) (least ? REVERSED(x) : (x))

kernel void argmax(global const T *src, global int *dst, int axis, int inner, int count, int least)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    COMPUTE_T best = ORDERED(LOAD(src, start));
    int at = 0;
    for (int i = 1; i < axis; ++i) {
        const COMPUTE_T value = ORDERED(LOAD(src, start + i * inner));
        at = value > best ? i : at;
        best = value > best ? value : best;
    }
    dst[item] = at;
}

#if T_IS_FLOAT
typedef float8 VALUES8;
typedef float4 VALUES4;
typedef float2 VALUES2;
#else
typedef int8 VALUES8;
typedef int4 VALUES4;
typedef int2 VALUES2;
#endif

// Keeps the better half: the greater value, of equal ones the lesser index.
#define HALVE(VALUE_T, INDEX_T, from, to)                                                                              \
    const INDEX_T keep##to = best##from.lo > best##from.hi || (best##from.lo == best##from.hi && at##from.lo < at##from.hi); \
    const VALUE_T best##to = keep##to ? best##from.lo : best##from.hi;                                                 \
    const INDEX_T at##to = keep##to ? at##from.lo : at##from.hi;

VECTOR_KERNEL void argmax_rows(global const T *src, global int *dst, int axis, int outer, int rows_per_item, int least)
{
    const int16 lanes = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int first_row = (int)get_global_id(0) * rows_per_item;
    for (int row = first_row; row < min(first_row + rows_per_item, outer); ++row) {
        COMPUTE_T16 best16 = ORDERED(LOAD16(src, row * axis));
        int16 at16 = lanes;
        for (int i = 16; i < axis; i += 16) {
            const int x = min(i, axis - 16);
            const COMPUTE_T16 value = ORDERED(LOAD16(src, row * axis + x));
            at16 = value > best16 ? lanes + x : at16;
            best16 = value > best16 ? value : best16;
        }
        HALVE(VALUES8, int8, 16, 8)
        HALVE(VALUES4, int4, 8, 4)
        HALVE(VALUES2, int2, 4, 2)
        dst[row] = best2.x > best2.y || (best2.x == best2.y && at2.x < at2.y) ? at2.x : at2.y;
    }
}

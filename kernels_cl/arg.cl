// SPDX-License-Identifier: Apache-2.0
// arg.cl: ARGMAX, ARGMIN along one axis.
// Maths    y = the least i with x[i] >= x[k] for all k; least: x[i] <= x[k]; the first NaN if there is one
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

// Integers in the order of numbers, or with `least` of their opposites; NaN is the first of all.
#if T_IS_FLOAT
#define KEY(V, bits_of, x) (isnan(x) ? (V)INT_MAX : least ? ~SORTED(V, bits_of((x) + 0.0f)) : SORTED(V, bits_of((x) + 0.0f)))
#define SORTED(V, bits) ((bits) ^ ((bits) >> (V)31 & (V)INT_MAX))
#else
#define KEY(V, bits_of, x) (least ? ~(x) : (x))
#endif
static inline int key(COMPUTE_T x, int least)
{
    return KEY(int, as_int, x);
}

static inline int16 key16(COMPUTE_T16 x, int least)
{
    return KEY(int16, as_int16, x);
}

kernel void argmax(global const T *src, global int *dst, int axis, int inner, int count, int least)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int start = item / inner * axis * inner + item % inner;
    int best = key(LOAD(src, start), least);
    int at = 0;
    for (int i = 1; i < axis; ++i) {
        const int value = key(LOAD(src, start + i * inner), least);
        at = value > best ? i : at;
        best = value > best ? value : best;
    }
    dst[item] = at;
}

// Keeps the better half: the greater value, of equal ones the lesser index.
#define HALVE(V, from, to)                                                                                             \
    const V keep##to = best##from.lo > best##from.hi || (best##from.lo == best##from.hi && at##from.lo < at##from.hi); \
    const V best##to = keep##to ? best##from.lo : best##from.hi;                                                       \
    const V at##to = keep##to ? at##from.lo : at##from.hi;

VECTOR_KERNEL void argmax_rows(global const T *src, global int *dst, int axis, int outer, int rows_per_item, int least)
{
    const int16 lanes = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int first_row = (int)get_global_id(0) * rows_per_item;
    for (int row = first_row; row < min(first_row + rows_per_item, outer); ++row) {
        int16 best16 = key16(LOAD16(src, row * axis), least);
        int16 at16 = lanes;
        for (int i = 16; i < axis; i += 16) {
            const int x = min(i, axis - 16);
            const int16 value = key16(LOAD16(src, row * axis + x), least);
            at16 = value > best16 ? lanes + x : at16;
            best16 = value > best16 ? value : best16;
        }
        HALVE(int8, 16, 8)
        HALVE(int4, 8, 4)
        HALVE(int2, 4, 2)
        dst[row] = best2.x > best2.y || (best2.x == best2.y && at2.x < at2.y) ? at2.x : at2.y;
    }
}

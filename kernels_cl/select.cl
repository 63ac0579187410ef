// SPDX-License-Identifier: Apache-2.0
// select.cl: SELECT.
// Maths    select_raw, select_vectors: dst = condition != 0 ? when_true : when_false
//          select_quant8: the same of table_true[when_true], table_false[when_false]: codes in the output's quantisation
// Tensors  condition uchar, when_true, when_false, dst of T: count elements; tables uchar [256] (T uchar)
// Units    per_item: vectors of sixteen that a work-item computes
// Defines  T: uchar | ushort | int: a type of the element's size (required); bits are moved as they are
// Launch   select_raw, select_quant8: global (>= count), local (64); one work-item per element
//          select_vectors: global (>= ceil(ceil(count / 16) / per_item)), local (1); for CPUs
//          extra items return
// Exact    yes
#ifndef T
#error "select.cl: define T"
#endif

#include "common/types.h"

kernel void select_raw(global const uchar *condition, global const T *when_true, global const T *when_false, global T *dst, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        dst[i] = condition[i] ? when_true[i] : when_false[i];
}

typedef struct __attribute__((packed)) {
    uchar16 value;
} UnalignedTruths;

VECTOR_KERNEL void select_vectors(
    global const uchar *condition, global const T *when_true, global const T *when_false, global T *dst, int count, int per_item)
{
    int i = (int)get_global_id(0) * per_item * 16;
    const int last = min(i + per_item * 16, count);
    for (; i + 16 <= last; i += 16) {
        const int16 is_true = WIDEN(((global const UnalignedTruths *)(condition + i))->value != (uchar16)0, int16);
        STORE16(dst, i, is_true ? LOAD16(when_true, i) : LOAD16(when_false, i));
    }
    for (; i < last; ++i)
        dst[i] = condition[i] ? when_true[i] : when_false[i];
}

kernel void select_quant8(global const uchar *condition, global const T *when_true, global const T *when_false, global T *dst,
    global const uchar *table_true, global const uchar *table_false, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        dst[i] = condition[i] ? table_true[when_true[i] & 0xff] : table_false[when_false[i] & 0xff];
}

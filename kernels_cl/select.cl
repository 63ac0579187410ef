// SPDX-License-Identifier: Apache-2.0
// select.cl: SELECT.
// Maths    select_raw: dst = condition != 0 ? when_true : when_false
//          select_quant8: the same of table_true[when_true], table_false[when_false]: codes in the output's quantisation
// Tensors  condition uchar, when_true, when_false, dst of T: count elements; tables uchar [256] (T uchar)
// Defines  T: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Launch   global (>= count), local (64); one work-item per element; extra items return
// Exact    yes
#ifndef T
#error "select.cl: define T"
#endif

kernel void select_raw(global const uchar *condition, global const T *when_true, global const T *when_false, global T *dst, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        dst[i] = condition[i] ? when_true[i] : when_false[i];
}

kernel void select_quant8(global const uchar *condition, global const T *when_true, global const T *when_false, global T *dst,
    global const uchar *table_true, global const uchar *table_false, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        dst[i] = condition[i] ? table_true[when_true[i] & 0xff] : table_false[when_false[i] & 0xff];
}

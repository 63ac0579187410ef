// SPDX-License-Identifier: Apache-2.0
// activation_table.cl: any function of one 8-bit number, by a table made on the host.
// Maths    y = table[x]
// Tensors  src, dst: count bytes; table [256], indexed by the input's byte (also where T is signed)
// Units    per_item: elements that a work-item computes
// Defines  GROUP: work-items of a group
// Launch   global (>= ceil(count / per_item)), local (GROUP); extra items return
// Exact    yes
#ifndef GROUP
#define GROUP 1
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1))) kernel void lookup(
    global const uchar *src, global uchar *dst, global const uchar *table, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item;
    const int last = min(first + per_item, count);
    for (int i = first; i < last; ++i)
        dst[i] = table[src[i]];
}

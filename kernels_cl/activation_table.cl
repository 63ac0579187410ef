// SPDX-License-Identifier: Apache-2.0
// activation_table.cl: any function of one 8-bit number, by a table made on the host.
// Maths    y = table[x]
// Tensors  src, dst: count bytes; table: see common/look_up_row.h, by the input's byte (also where its type is signed)
// Units    per_item: elements that a work-item computes
// Defines  DOT4: 0 (default) | 1 | 2 | 3: not 0 where that form of common/dot4.h works: 64 bytes are looked up at once
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   global (>= ceil(count / per_item)), local (GROUP); extra items return
// Exact    yes
#define T uchar
#ifndef DOT4
#define DOT4 0
#endif
#define OF_BYTES (DOT4 != 0)

#include "common/types.h"
#if OF_BYTES
#include "common/dot4.h"
#include "common/bytes.h"
#endif
#include "common/look_up_row.h"

VECTOR_KERNEL void lookup(global const uchar *src, global uchar *dst, global const uchar *table, int count, int per_item)
{
    const int first = (int)get_global_id(0) * per_item;
    if (first < count)
        look_up_row(table, src + first, dst + first, min(per_item, count - first));
}

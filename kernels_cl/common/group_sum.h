// SPDX-License-Identifier: Apache-2.0
// group_sum.h: the sum of what the work-items of a group have.
// Defines  SUM_T: of the values; GROUP, common/types.h (required, before inclusion)
// Gives    sum_of_group: the sum, for all of a group; `shared`: GROUP values
#ifndef SUM_T
#error "group_sum.h: define SUM_T"
#endif

// PoCL 3.0's compiler crashes at the barriers here where a group is one work-item.
static inline SUM_T sum_of_group(SUM_T value, local SUM_T *shared)
{
#if GROUP == 1
    return value;
#else
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
    shared[get_local_id(0)] = value;
    GROUP_BARRIER(CLK_LOCAL_MEM_FENCE);
    SUM_T sum = 0;
    for (int i = 0; i < GROUP; ++i)
        sum += shared[i];
    return sum;
#endif
}

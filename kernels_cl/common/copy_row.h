// SPDX-License-Identifier: Apache-2.0
// copy_row.h: neighbours from one tensor of T to another, by vectors.
// Exact    yes
// Needs    common/types.h

static inline void copy_row(global const T *src, int count, global T *dst)
{
    if (count < 16)
        for (int i = 0; i < count; ++i)
            STORE(dst, i, LOAD(src, i));
    else
        for (int i = 0; i < count; i += 16)
            STORE16(dst, min(i, count - 16), LOAD16(src, min(i, count - 16)));
}

// SPDX-License-Identifier: Apache-2.0
// kept_lanes.h: sixteen numbers as kept.h has them, of which some count.
// Gives    load_kept, store_kept: the first `count` of sixteen, from and to tensors of T
// Needs    common/chain_step.h, common/kept.h

#if T_IS_FLOAT
#define load_kept load_lanes
#define store_kept store_lanes
#else
static inline T16 load_kept(global const T *src, int offset, int count)
{
    return count == 16 ? LOAD_KEPT16(src, offset) : WIDEN(load_lanes(src, offset, count), T16);
}

static inline void store_kept(global T *dst, int offset, T16 value, int count)
{
    if (count == 16)
        STORE_KEPT16(dst, offset, value);
    else
        store_lanes(dst, offset, WIDEN(value, int16), count);
}
#endif

// SPDX-License-Identifier: Apache-2.0
// kept.h: numbers as a step keeps them while it computes: floats, of halves too; bytes as they are, a quarter of what integers take.
// Gives    KEPT_T, KEPT_T16; load_kept, store_kept: the first `count` of sixteen, from and to tensors of T
// Needs    common/chain_step.h

#if T_IS_FLOAT
#define KEPT_T float
#define KEPT_T16 float16
#define load_kept load_lanes
#define store_kept store_lanes
#else
#define KEPT_T T
#define KEPT_T16 T16

static inline T16 load_kept(global const T *src, int offset, int count)
{
    return count == 16 ? ((global const UnalignedT16 *)(src + offset))->value : WIDEN(load_lanes(src, offset, count), T16);
}

static inline void store_kept(global T *dst, int offset, T16 value, int count)
{
    if (count == 16)
        ((global UnalignedT16 *)(dst + offset))->value = value;
    else
        store_lanes(dst, offset, WIDEN(value, int16), count);
}
#endif

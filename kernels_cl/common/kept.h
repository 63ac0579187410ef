// SPDX-License-Identifier: Apache-2.0
// kept.h: numbers as a kernel keeps them while it computes: floats, of halves too; bytes as they are, a quarter of what integers take.
// Gives    KEPT_T, KEPT_T16; LOAD_KEPT16(p, i), STORE_KEPT16(p, i, v): sixteen elements from and to tensors of T, any alignment
// Needs    common/types.h

#if T_IS_FLOAT
#define KEPT_T float
#define KEPT_T16 float16
#define LOAD_KEPT16 LOAD16
#define STORE_KEPT16 STORE16
#else
#define KEPT_T T
#define KEPT_T16 T16
#define LOAD_KEPT16(p, i) (((global const UnalignedT16 *)((p) + (i)))->value)
#define STORE_KEPT16(p, i, v) (((global UnalignedT16 *)((p) + (i)))->value = (v))
#endif

// SPDX-License-Identifier: Apache-2.0
// map.h: kernels that compute each element from the one at its place, sixteen at a time.
// Defines  T, common/types.h (required, before inclusion)
// Gives    MAP(NAME, FORMULA, MORE): kernel NAME(src, dst, count, per_item MORE), FORMULA of COMPUTE_T16 x; MORE: a macro for further
//          arguments, which begins with a comma, or nothing
//          Tensors  src, dst: count elements of T
//          Units    per_item: vectors that a work-item computes
//          Launch   global (>= ceil(ceil(count / 16) / per_item)), local (GROUP); extra items return

#define MAP(NAME, FORMULA, MORE)                                                                                \
    VECTOR_KERNEL void NAME(global const T *src, global T *dst, int count, int per_item MORE)                   \
    {                                                                                                           \
        int i = (int)get_global_id(0) * per_item * 16;                                                          \
        const int last = min(i + per_item * 16, count);                                                         \
        for (; i + 16 <= last; i += 16) {                                                                       \
            const COMPUTE_T16 x = LOAD16(src, i);                                                               \
            const COMPUTE_T16 y = FORMULA;                                                                      \
            STORE16(dst, i, y);                                                                                 \
        }                                                                                                       \
        if (i < last) {                                                                                         \
            COMPUTE_T some[16];                                                                                 \
            for (int k = 0; k < 16; ++k)                                                                        \
                some[k] = LOAD(src, min(i + k, last - 1));                                                      \
            const COMPUTE_T16 x = vload16(0, some);                                                             \
            const COMPUTE_T16 y = FORMULA;                                                                      \
            vstore16(y, 0, some);                                                                               \
            for (int k = 0; i + k < last; ++k)                                                                  \
                STORE(dst, i + k, some[k]);                                                                     \
        }                                                                                                       \
    }

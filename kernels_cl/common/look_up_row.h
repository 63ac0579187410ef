// SPDX-License-Identifier: Apache-2.0
// look_up_row.h: neighbours by a table of 256 bytes.
// Tensors  table: as bytes.h has it where OF_BYTES is not 0, else [256] by the bits of an element
// Defines  T: uchar | char, OF_BYTES: 0 | 1, with 1 common/bytes.h (required, before inclusion)
// Exact    yes; dst may be src

#if OF_BYTES
typedef struct __attribute__((packed)) {
    int16 value;
} UnalignedBytes64;

static inline void look_up_row(global const uchar *table, global const T *src, global T *dst, int count)
{
    global const int16 *parts = (global const int16 *)table;
    int i = 0;
    for (; i + 64 <= count; i += 64)
        ((global UnalignedBytes64 *)(dst + i))->value = look_up_bytes(parts, ((global const UnalignedBytes64 *)(src + i))->value);
    if (i < count) {
        int16 bytes = (int16)0;
        for (int k = 0; k < count - i; ++k)
            ((T *)&bytes)[k] = src[i + k];
        bytes = look_up_bytes(parts, bytes);
        for (int k = 0; k < count - i; ++k)
            dst[i + k] = ((T *)&bytes)[k];
    }
}
#else
static inline void look_up_row(global const uchar *table, global const T *src, global T *dst, int count)
{
    for (int i = 0; i < count; ++i)
        dst[i] = (T)table[(uchar)src[i]];
}
#endif

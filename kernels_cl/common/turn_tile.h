// SPDX-License-Identifier: Apache-2.0
// turn_tile.h: 16 x 16 elements from rows to columns, in registers.
// Defines  RAW: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Exact    yes
#define RAW16_OF_(a) a##16
#define RAW16_OF(a) RAW16_OF_(a)
typedef RAW16_OF(RAW) RAW16;

// PoCL 3.0 makes eight loads of vload16 on uchar; a packed structure stays one unaligned load or store.
typedef struct __attribute__((packed)) {
    RAW16 value;
} UnalignedRaw16;

#define RAW16_AT(p) (((global UnalignedRaw16 *)(p))->value)

#define LOW(a, b) (RAW16)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#define HIGH(a, b) (RAW16)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf)

// Rows of `from`, from_stride apart, become columns of `to`, whose rows are to_stride apart.
// Rows i and i + 8 interleaved are rows 2 i and 2 i + 1; after four times, columns.
static inline void turn_tile(global const RAW *from, global RAW *to, int from_stride, int to_stride)
{
    RAW16 tile[16], next[16];
#pragma unroll
    for (int i = 0; i < 16; ++i)
        tile[i] = RAW16_AT(from + i * from_stride);
#pragma unroll
    for (int round = 0; round < 4; ++round) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            next[2 * i] = LOW(tile[i], tile[i + 8]);
            next[2 * i + 1] = HIGH(tile[i], tile[i + 8]);
        }
#pragma unroll
        for (int i = 0; i < 16; ++i)
            tile[i] = next[i];
    }
#pragma unroll
    for (int i = 0; i < 16; ++i)
        RAW16_AT(to + i * to_stride) = tile[i];
}

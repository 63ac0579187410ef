// SPDX-License-Identifier: Apache-2.0
// turn_tile.h: 16 x 16 elements, or 3 x 16 as pictures have them, from rows to columns, in registers.
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

// Three rows of 16, from_stride apart, become 16 rows of three, one behind the other.
static inline void interleave_three(global const RAW *from, global RAW *to, int from_stride)
{
    const RAW16 a = RAW16_AT(from), b = RAW16_AT(from + from_stride), c = RAW16_AT(from + 2 * from_stride);
    RAW16_AT(to) = (RAW16)(a.s0, b.s0, c.s0, a.s1, b.s1, c.s1, a.s2, b.s2, c.s2, a.s3, b.s3, c.s3, a.s4, b.s4, c.s4, a.s5);
    RAW16_AT(to + 16) = (RAW16)(b.s5, c.s5, a.s6, b.s6, c.s6, a.s7, b.s7, c.s7, a.s8, b.s8, c.s8, a.s9, b.s9, c.s9, a.sa, b.sa);
    RAW16_AT(to + 32) = (RAW16)(c.sa, a.sb, b.sb, c.sb, a.sc, b.sc, c.sc, a.sd, b.sd, c.sd, a.se, b.se, c.se, a.sf, b.sf, c.sf);
}

// The other way round: the rows are to_stride apart.
static inline void separate_three(global const RAW *from, global RAW *to, int to_stride)
{
    const RAW16 p = RAW16_AT(from), q = RAW16_AT(from + 16), r = RAW16_AT(from + 32);
    RAW16_AT(to) = (RAW16)(p.s0, p.s3, p.s6, p.s9, p.sc, p.sf, q.s2, q.s5, q.s8, q.sb, q.se, r.s1, r.s4, r.s7, r.sa, r.sd);
    RAW16_AT(to + to_stride) =
        (RAW16)(p.s1, p.s4, p.s7, p.sa, p.sd, q.s0, q.s3, q.s6, q.s9, q.sc, q.sf, r.s2, r.s5, r.s8, r.sb, r.se);
    RAW16_AT(to + 2 * to_stride) =
        (RAW16)(p.s2, p.s5, p.s8, p.sb, p.se, q.s1, q.s4, q.s7, q.sa, q.sd, r.s0, r.s3, r.s6, r.s9, r.sc, r.sf);
}

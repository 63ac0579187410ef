// SPDX-License-Identifier: Apache-2.0
// pairs.h: bytes by a table of what every pair of bytes makes.
// Maths    y = table[a][b]
// Tensors  table [256, 256] of T, by the bits of a and b
// Defines  T (required, before inclusion), of which the functions are for uchar and char
// Exact    yes
static inline int paired(int a, int b, global const T *table)
{
    return (int)table[(a & 0xff) << 8 | (b & 0xff)];
}

static inline int16 paired16(int16 a, int16 b, global const T *table)
{
    const int16 at = (a & 0xff) << 8 | (b & 0xff);
    return (int16)((int)table[at.s0], (int)table[at.s1], (int)table[at.s2], (int)table[at.s3], (int)table[at.s4], (int)table[at.s5],
                   (int)table[at.s6], (int)table[at.s7], (int)table[at.s8], (int)table[at.s9], (int)table[at.sa], (int)table[at.sb],
                   (int)table[at.sc], (int)table[at.sd], (int)table[at.se], (int)table[at.sf]);
}

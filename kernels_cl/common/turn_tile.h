// SPDX-License-Identifier: Apache-2.0
// turn_tile.h: 16 x 16 elements, or 2, 3, 4, 8 x 16 as pictures and groups have them, from rows to columns, in registers.
// Defines  RAW: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Exact    yes
#include "common/raw_vectors.h"
#include "common/shuffle.h"

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
            next[2 * i] = INTERLEAVE_LOW(RAW16, tile[i], tile[i + 8]);
            next[2 * i + 1] = INTERLEAVE_HIGH(RAW16, tile[i], tile[i + 8]);
        }
#pragma unroll
        for (int i = 0; i < 16; ++i)
            tile[i] = next[i];
    }
#pragma unroll
    for (int i = 0; i < 16; ++i)
        RAW16_AT(to + i * to_stride) = tile[i];
}

// What 16 elements behind each other are of three rows: those of a and b first, then those of c into the gaps.
#define FIRST_OF_ROWS(a, b, c) \
    SHUFFLE(RAW16, SHUFFLE(RAW16, a, b, 0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5), c, \
            0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15)
#define SECOND_OF_ROWS(a, b, c) \
    SHUFFLE(RAW16, SHUFFLE(RAW16, a, b, 21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10, 26), c, \
            0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14, 15)
#define THIRD_OF_ROWS(a, b, c) \
    SHUFFLE(RAW16, SHUFFLE(RAW16, a, b, 0, 11, 27, 0, 12, 28, 0, 13, 29, 0, 14, 30, 0, 15, 31, 0), c, \
            26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14, 31)
// And what a row is of 48 elements behind each other.
#define FIRST_ROW(a, b, c) \
    SHUFFLE(RAW16, SHUFFLE(RAW16, a, b, 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0, 0, 0, 0, 0), c, \
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 20, 23, 26, 29)
#define SECOND_ROW(a, b, c) \
    SHUFFLE(RAW16, SHUFFLE(RAW16, a, b, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 0, 0, 0, 0, 0), c, \
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 21, 24, 27, 30)
#define THIRD_ROW(a, b, c) \
    SHUFFLE(RAW16, SHUFFLE(RAW16, a, b, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0, 0, 0, 0, 0, 0), c, \
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19, 22, 25, 28, 31)

// Three rows of 16, from_stride apart, become 16 rows of three, one behind the other.
static inline void interleave_three(global const RAW *from, global RAW *to, int from_stride)
{
    const RAW16 a = RAW16_AT(from), b = RAW16_AT(from + from_stride), c = RAW16_AT(from + 2 * from_stride);
    RAW16_AT(to) = FIRST_OF_ROWS(a, b, c);
    RAW16_AT(to + 16) = SECOND_OF_ROWS(a, b, c);
    RAW16_AT(to + 32) = THIRD_OF_ROWS(a, b, c);
}

// The other way round: the rows are to_stride apart.
static inline void separate_three(global const RAW *from, global RAW *to, int to_stride)
{
    const RAW16 a = RAW16_AT(from), b = RAW16_AT(from + 16), c = RAW16_AT(from + 32);
    RAW16_AT(to) = FIRST_ROW(a, b, c);
    RAW16_AT(to + to_stride) = SECOND_ROW(a, b, c);
    RAW16_AT(to + 2 * to_stride) = THIRD_ROW(a, b, c);
}

// `rows` of 16, from_stride apart, become 16 of them, one behind the other; rows: 2, 4 or 8, a constant. As turn_tile does it, where
// the tile has fewer rows.
static inline __attribute__((always_inline)) void interleave(global const RAW *from, global RAW *to, int from_stride, int rows)
{
    RAW16 tile[8], next[8];
#pragma unroll
    for (int i = 0; i < rows; ++i)
        tile[i] = RAW16_AT(from + i * from_stride);
#pragma unroll
    for (int round = 1; round < rows; round *= 2) {
#pragma unroll
        for (int i = 0; i < rows / 2; ++i) {
            next[2 * i] = INTERLEAVE_LOW(RAW16, tile[i], tile[i + rows / 2]);
            next[2 * i + 1] = INTERLEAVE_HIGH(RAW16, tile[i], tile[i + rows / 2]);
        }
#pragma unroll
        for (int i = 0; i < rows; ++i)
            tile[i] = next[i];
    }
#pragma unroll
    for (int i = 0; i < rows; ++i)
        RAW16_AT(to + i * 16) = tile[i];
}

// The other way round: the rows are to_stride apart.
static inline __attribute__((always_inline)) void separate(global const RAW *from, global RAW *to, int to_stride, int rows)
{
    RAW16 tile[8], next[8];
#pragma unroll
    for (int i = 0; i < rows; ++i)
        tile[i] = RAW16_AT(from + i * 16);
#pragma unroll
    for (int round = 1; round < rows; round *= 2) {
#pragma unroll
        for (int i = 0; i < rows / 2; ++i) {
            next[i] = EVEN_OF(RAW16, tile[2 * i], tile[2 * i + 1]);
            next[i + rows / 2] = ODD_OF(RAW16, tile[2 * i], tile[2 * i + 1]);
        }
#pragma unroll
        for (int i = 0; i < rows; ++i)
            tile[i] = next[i];
    }
#pragma unroll
    for (int i = 0; i < rows; ++i)
        RAW16_AT(to + i * to_stride) = tile[i];
}

#define IS_FEW(rows) ((rows) == 2 || (rows) == 3 || (rows) == 4 || (rows) == 8)

// The same of any few rows.
static inline void interleave_few(global const RAW *from, global RAW *to, int from_stride, int rows)
{
    if (rows == 2)
        interleave(from, to, from_stride, 2);
    else if (rows == 3)
        interleave_three(from, to, from_stride);
    else if (rows == 4)
        interleave(from, to, from_stride, 4);
    else
        interleave(from, to, from_stride, 8);
}

static inline void separate_few(global const RAW *from, global RAW *to, int to_stride, int rows)
{
    if (rows == 2)
        separate(from, to, to_stride, 2);
    else if (rows == 3)
        separate_three(from, to, to_stride);
    else if (rows == 4)
        separate(from, to, to_stride, 4);
    else
        separate(from, to, to_stride, 8);
}

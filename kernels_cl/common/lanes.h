// SPDX-License-Identifier: Apache-2.0
// lanes.h: sixteen elements, one beside the other in a vector.
// Defines  T, common/types.h (required, before inclusion)
// Gives    sum_of_lanes, largest_lane of COMPUTE_T16; elements that are `apart` from each other: column_of_rows, store_column;
//          sums_of_vectors, transpose16, columns_of_rows: of sixteen vectors

#include "common/shuffle.h"

#if T_IS_FLOAT
#define LARGER fmax
#define LANES_OF(n) float##n
#else
#define LARGER max
#define LANES_OF(n) int##n
#endif
static inline COMPUTE_T sum_of_lanes(COMPUTE_T16 v)
{
    const LANES_OF(8) a = v.lo + v.hi;
    const LANES_OF(4) b = a.lo + a.hi;
    const LANES_OF(2) c = b.lo + b.hi;
    return c.x + c.y;
}

static inline COMPUTE_T largest_lane(COMPUTE_T16 v)
{
    const LANES_OF(8) a = LARGER(v.lo, v.hi);
    const LANES_OF(4) b = LARGER(a.lo, a.hi);
    const LANES_OF(2) c = LARGER(b.lo, b.hi);
    return LARGER(c.x, c.y);
}

// Lane k: the sum of the lanes of vector k. Neighbouring lanes are added four times.
#define ADD_NEIGHBOURS(i) vectors[i] = EVEN_OF(uint16, vectors[2 * i], vectors[2 * i + 1]) + ODD_OF(uint16, vectors[2 * i], vectors[2 * i + 1]);
static inline COMPUTE_T16 sums_of_vectors(COMPUTE_T16 *vectors)
{
    ADD_NEIGHBOURS(0) ADD_NEIGHBOURS(1) ADD_NEIGHBOURS(2) ADD_NEIGHBOURS(3)
    ADD_NEIGHBOURS(4) ADD_NEIGHBOURS(5) ADD_NEIGHBOURS(6) ADD_NEIGHBOURS(7)
    ADD_NEIGHBOURS(0) ADD_NEIGHBOURS(1) ADD_NEIGHBOURS(2) ADD_NEIGHBOURS(3)
    ADD_NEIGHBOURS(0) ADD_NEIGHBOURS(1)
    ADD_NEIGHBOURS(0)
    return vectors[0];
}

// No loops over lanes: compilers make gathers and scatters of them, which take longer.
#define LANE(i) LOAD(src, (i) * apart)
static inline COMPUTE_T16 column_of_rows(global const T *src, int apart)
{
    return (COMPUTE_T16)(LANE(0), LANE(1), LANE(2), LANE(3), LANE(4), LANE(5), LANE(6), LANE(7),
                     LANE(8), LANE(9), LANE(10), LANE(11), LANE(12), LANE(13), LANE(14), LANE(15));
}

#define STORE_LANE(i, hex) STORE(dst, (i) * apart, column.s##hex);
static inline void store_column(global T *dst, int apart, COMPUTE_T16 column)
{
    STORE_LANE(0, 0) STORE_LANE(1, 1) STORE_LANE(2, 2) STORE_LANE(3, 3) STORE_LANE(4, 4) STORE_LANE(5, 5) STORE_LANE(6, 6) STORE_LANE(7, 7)
    STORE_LANE(8, 8) STORE_LANE(9, 9) STORE_LANE(10, a) STORE_LANE(11, b) STORE_LANE(12, c) STORE_LANE(13, d) STORE_LANE(14, e) STORE_LANE(15, f)
}

// Rows of sixteen vectors become columns: rows i and i + 8 interleaved are rows 2 i and 2 i + 1; after four times, columns.
static inline void transpose16(COMPUTE_T16 *tile)
{
    COMPUTE_T16 next[16];
    _Pragma("unroll") for (int round = 0; round < 4; ++round) {
        _Pragma("unroll") for (int i = 0; i < 8; ++i) {
            next[2 * i] = INTERLEAVE_LOW(uint16, tile[i], tile[i + 8]);
            next[2 * i + 1] = INTERLEAVE_HIGH(uint16, tile[i], tile[i + 8]);
        }
        _Pragma("unroll") for (int i = 0; i < 16; ++i) tile[i] = next[i];
    }
}

// Sixteen neighbours of every row.
static inline void columns_of_rows(global const T *src, int apart, COMPUTE_T16 *columns)
{
    _Pragma("unroll") for (int i = 0; i < 16; ++i) columns[i] = LOAD16(src, i * apart);
    transpose16(columns);
}

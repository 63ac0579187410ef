// SPDX-License-Identifier: Apache-2.0
// move_neighbours.h: elements that lie together, to another place, by vectors.
// Defines  RAW: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Exact    yes
#include "common/raw_vectors.h"

// All by two vectors of SIZE, the second of which may begin in the first; PIECE_AT(p): so many elements.
#define MOVE_ENDS(PIECE_AT, SIZE)                                        \
    {                                                                    \
        PIECE_AT(to) = PIECE_AT(from);                                   \
        PIECE_AT(to + count - SIZE) = PIECE_AT(from + count - SIZE);     \
    }

static inline void move_neighbours(global const RAW *from, global RAW *to, int count)
{
    if (count >= 16) {
        for (int i = 0; i + 16 < count; i += 16)
            RAW16_AT(to + i) = RAW16_AT(from + i);
        RAW16_AT(to + count - 16) = RAW16_AT(from + count - 16);
    } else if (count >= 8)
        MOVE_ENDS(RAW8_AT, 8)
    else if (count >= 4)
        MOVE_ENDS(RAW4_AT, 4)
    else if (count >= 2)
        MOVE_ENDS(RAW2_AT, 2)
    else if (count == 1)
        *to = *from;
}

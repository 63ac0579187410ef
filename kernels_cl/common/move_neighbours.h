// SPDX-License-Identifier: Apache-2.0
// move_neighbours.h: elements that lie together, to another place, by vectors.
// Defines  RAW: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Exact    yes
#include "common/raw_vectors.h"

// Rows of some length by vectors, the last of which begins in the one before; PIECE_AT(p): so many elements.
#define MOVE_PIECES(PIECE_AT, SIZE)                                      \
    {                                                                    \
        for (int i = 0; i + SIZE < count; i += SIZE)                     \
            PIECE_AT(to + i) = PIECE_AT(from + i);                       \
        PIECE_AT(to + count - SIZE) = PIECE_AT(from + count - SIZE);     \
    }

static inline void move_neighbours(global const RAW *from, global RAW *to, int count)
{
    if (count >= 16)
        MOVE_PIECES(RAW16_AT, 16)
    else if (count >= 8)
        MOVE_PIECES(RAW8_AT, 8)
    else if (count >= 4)
        MOVE_PIECES(RAW4_AT, 4)
    else if (count >= 2)
        MOVE_PIECES(RAW2_AT, 2)
    else if (count == 1)
        *to = *from;
}

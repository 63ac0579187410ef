// SPDX-License-Identifier: Apache-2.0
// place.h: where on an axis an index points.
// Gives    place_of; NEGATIVE_*
// Exact    yes
#include "common/fault.h"

// What a negative index means: as any outside the axis; that there is nothing, so 0; or a place counted from the axis' end.
#define NEGATIVE_WRONG 0
#define NEGATIVE_MISSING 1
#define NEGATIVE_FROM_END 2

// The place of an index on the axis, -1 where there is nothing. What is outside is complained of (common/fault.h) and clamped to it.
static inline int place_of(int index, int axis, int negative, volatile global int *fault, int number)
{
    if (index < 0 && negative == NEGATIVE_MISSING)
        return -1;
    const int place = index < 0 && negative == NEGATIVE_FROM_END ? index + axis : index;
    if (place < 0 || place >= axis)
        complain(fault, number);
    return clamp(place, 0, axis - 1);
}

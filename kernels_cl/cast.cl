// SPDX-License-Identifier: Apache-2.0
// cast.cl: CAST of numbers as they are stored from one type to another.
// Maths    y = x; to integers cut towards zero and saturated, NaN to 0
// Tensors  src of FROM, dst of TO: count elements
// Units    per_item: vectors of sixteen that a work-item computes
// Defines  FROM, TO: float | half | int | uchar, two different ones (required); half is read and written by way of float
// Launch   cast: global (>= count), local (64); one work-item per element
//          cast_vectors: global (>= ceil(ceil(count / 16) / per_item)), local (1); for CPUs
//          extra items return
// Exact    yes; int to half is rounded to float first
#ifndef FROM
#error "cast.cl: define FROM"
#endif
#ifndef TO
#error "cast.cl: define TO"
#endif

#define T half // what types.h reads and writes here; the others are plain
#include "common/types.h"

#define READ_float(p, i) ((p)[i])
#define READ_half(p, i) LOAD(p, i)
#define READ_int(p, i) ((p)[i])
#define READ_uchar(p, i) ((p)[i])
#define WRITE_float(p, i, v) ((p)[i] = (float)(v))
#define WRITE_half(p, i, v) STORE(p, i, (float)(v))
#define WRITE_int(p, i, v) ((p)[i] = (v) == (v) ? convert_int_sat(v) : 0)
#define WRITE_uchar(p, i, v) ((p)[i] = (v) == (v) ? convert_uchar_sat(v) : (uchar)0)

kernel void cast(global const FROM *src, global TO *dst, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        JOIN(WRITE_, TO)(dst, i, JOIN(READ_, FROM)(src, i));
}

#define UNALIGNED(NAME, TYPE)                \
    typedef struct __attribute__((packed)) { \
        TYPE value;                          \
    } NAME;
UNALIGNED(UnalignedFloats, float16)
UNALIGNED(UnalignedInts, int16)
UNALIGNED(UnalignedBytes, uchar16)

// Cut and saturated; the least float above the greatest int is 2^31.
static inline int16 whole16(float16 x, float least, float greatest, int beyond)
{
    const float16 inside = x < least ? (float16)least : x > greatest ? (float16)greatest : x == x ? x : (float16)0.0f;
    return x > greatest ? (int16)beyond : WIDEN(inside, int16);
}

#define READ16_float(p) (((global const UnalignedFloats *)(p))->value)
#define READ16_half(p) LOAD16(p, 0)
#define READ16_int(p) (((global const UnalignedInts *)(p))->value)
#define READ16_uchar(p) WIDEN(((global const UnalignedBytes *)(p))->value, int16)
#define AS_FLOATS_float(v) (v)
#define AS_FLOATS_half(v) (v)
#define AS_FLOATS_int(v) WIDEN(v, float16)
#define AS_FLOATS_uchar(v) WIDEN(v, float16)
#define AS_INTS_float(v) whole16(v, -2147483648.0f, 2147483520.0f, 2147483647)
#define AS_INTS_half(v) AS_INTS_float(v)
#define AS_INTS_int(v) (v)
#define AS_INTS_uchar(v) (v)
#define AS_BYTES_float(v) whole16(v, 0.0f, 255.0f, 255)
#define AS_BYTES_half(v) AS_BYTES_float(v)
#define AS_BYTES_int(v) min(max(v, (int16)0), (int16)255)
#define AS_BYTES_uchar(v) (v)
#define WRITE16_float(p, v) (((global UnalignedFloats *)(p))->value = JOIN(AS_FLOATS_, FROM)(v))
#define WRITE16_half(p, v) STORE16(p, 0, JOIN(AS_FLOATS_, FROM)(v))
#define WRITE16_int(p, v) (((global UnalignedInts *)(p))->value = JOIN(AS_INTS_, FROM)(v))
#define WRITE16_uchar(p, v) (((global UnalignedBytes *)(p))->value = WIDEN(JOIN(AS_BYTES_, FROM)(v), uchar16))

VECTOR_KERNEL void cast_vectors(global const FROM *src, global TO *dst, int count, int per_item)
{
    int i = (int)get_global_id(0) * per_item * 16;
    const int last = min(i + per_item * 16, count);
    for (; i + 16 <= last; i += 16)
        JOIN(WRITE16_, TO)(dst + i, JOIN(READ16_, FROM)(src + i));
    for (; i < last; ++i)
        JOIN(WRITE_, TO)(dst, i, JOIN(READ_, FROM)(src, i));
}

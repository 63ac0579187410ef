// SPDX-License-Identifier: Apache-2.0
// cast.cl: CAST of numbers as they are stored from one type to another.
// Maths    y = x; to integers cut towards zero and saturated, NaN to 0
// Tensors  src of FROM, dst of TO: count elements
// Defines  FROM, TO: float | half | int | uchar (required); half is read and written by way of float
// Launch   global (>= count), local (64); one work-item per element; extra items return
// Exact    yes; int to half is rounded to float first
#ifndef FROM
#error "cast.cl: define FROM"
#endif
#ifndef TO
#error "cast.cl: define TO"
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define READ_float(p, i) ((p)[i])
#define READ_half(p, i) vload_half(i, p)
#define READ_int(p, i) ((p)[i])
#define READ_uchar(p, i) ((p)[i])
#define WRITE_float(p, i, v) ((p)[i] = (float)(v))
#define WRITE_half(p, i, v) vstore_half_rte((float)(v), i, p)
#define WRITE_int(p, i, v) ((p)[i] = (v) == (v) ? convert_int_sat(v) : 0)
#define WRITE_uchar(p, i, v) ((p)[i] = (v) == (v) ? convert_uchar_sat(v) : (uchar)0)

kernel void cast(global const FROM *src, global TO *dst, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        JOIN(WRITE_, TO)(dst, i, JOIN(READ_, FROM)(src, i));
}

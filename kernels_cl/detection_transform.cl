// SPDX-License-Identifier: Apache-2.0
// detection_transform.cl: AXIS_ALIGNED_BBOX_TRANSFORM.
// Maths    centre + delta * side, exp(delta) * side of each box and class, cut to the image of the box's batch
//          8-bit deltas: on scale * (q - zero_point), exp from a table, stored by round half away from zero
// Tensors  rois, dst of T [rois, 4], [rois, classes, 4]; deltas of DELTA_T [rois, classes, 4] (dx, dy, dw, dh); batch_index int [rois]
//          image_info of T [batches, 2] (height, width); exponentials float [256], by the code's byte (DELTA_T of one byte)
// Units    scales (rois, deltas, image_info, dst), delta_zero; used by ushort only, whose zero points are 0
// Defines  T: float | half | ushort (required); DELTA_T: T, or uchar | char for ushort (required)
// Launch   global (>= rois * classes), local (64); one work-item per box; extra items return
// Exact    ushort: as float32 operations rounded one by one
// Errors   a batch outside [0, batches), which counts as the nearest one, and corners out of order are complained of (common/fault.h)
#ifndef T
#error "detection_transform.cl: define T"
#endif
#ifndef DELTA_T
#error "detection_transform.cl: define DELTA_T"
#endif

#include "common/types.h"
#include "common/real.h"
#include "common/boxes.h"
#include "common/fault.h"

#if T_IS_FLOAT
#define REAL(p, i, scale) LOAD(p, i)
#define DELTA(i) LOAD(deltas, i)
#define FACTOR(i) exp(LOAD(deltas, i))
#define STORE_REAL(p, i, v, scale) STORE(p, i, v)
#else
#define REAL(p, i, scale) ((float)(p)[i] * (scale))
#define DELTA(i) ((float)(deltas[i] - delta_zero) * scales.y)
#define FACTOR(i) exponentials[(uchar)deltas[i]]
#define STORE_REAL(p, i, v, scale) ((p)[i] = convert_ushort_sat(quantized(v, scale, 0)))
#endif

kernel void axis_aligned_bbox_transform(
    global const T *rois, global const DELTA_T *deltas, global const int *batch_index, global const T *image_info, global T *dst,
    global const float *exponentials, int classes, int batches, int count, float4 scales, int delta_zero,
    global int *fault, int number)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int roi = item / classes, batch = batch_index[roi], image = clamp(batch, 0, batches - 1) * 2;
    float corner[4];
    for (int i = 0; i < 4; ++i)
        corner[i] = REAL(rois, roi * 4 + i, scales.x);
    if (batch < 0 || batch >= batches || !has_order(vload4(0, corner)))
        complain(fault, number);
    const float2 delta = (float2)(DELTA(item * 4), DELTA(item * 4 + 1));
    const float2 factor = (float2)(FACTOR(item * 4 + 2), FACTOR(item * 4 + 3));
    const float height = REAL(image_info, image, scales.z), width = REAL(image_info, image + 1, scales.z);
    const float4 moved = moved_box(vload4(0, corner), delta, factor, height, width);
    vstore4(moved, 0, corner);
    for (int i = 0; i < 4; ++i)
        STORE_REAL(dst, item * 4 + i, corner[i], scales.w);
}

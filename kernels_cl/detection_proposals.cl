// SPDX-License-Identifier: Apache-2.0
// detection_proposals.cl: GENERATE_PROPOSALS before and after the suppression (detection_nms.cl), one list for each batch.
// Maths    proposals_transform: every anchor at every place, moved by its deltas and cut to the image, as detection_transform.cl does;
//          candidates: sides > min_size, centre inside the image; proposals_gather: what was kept, batch after batch
// Tensors  scores, deltas of T by strides (batch, y, x, channel), deltas with 4 channels (dx, dy, dw, dh) for one of the scores
//          anchors of ANCHOR_T [anchors, 4], image_info of BOX_T [batches, 2] (height, width); exponentials float [256] by code
//          real_scores float, alive uchar [batches, n], real_boxes float [batches, n, 4], n = height * width * anchors, anchors fastest
//          kept int [batches, room], kept_count int [batches]; outputs have room for batches * room boxes
//          status int [2]: number of boxes, 1 where an anchor has corners in the wrong order; 0 before
// Units    sizes (height, width, anchors, batches); distances (y, x) between places in the image
//          scales (scores, deltas, anchors, image_info), zeros (scores, deltas, scores_out); out_scales (scores_out, boxes_out);
//          not used by float; boxes and anchors have zero point 0
// Defines  T: float | half | uchar | char (required); ANCHOR_T, BOX_T: T, or short, ushort for 8-bit types (required)
// Launch   proposals_transform: global (>= n, batches); proposals_gather: global (>= room, batches); local (64, 1); extra items return
// Exact    8-bit: as float32 operations rounded one by one
#ifndef T
#error "detection_proposals.cl: define T"
#endif
#ifndef ANCHOR_T
#error "detection_proposals.cl: define ANCHOR_T"
#endif
#ifndef BOX_T
#error "detection_proposals.cl: define BOX_T"
#endif

#include "common/types.h"
#include "common/real.h"
#include "common/boxes.h"

#if T_IS_FLOAT
#define SCORE(i) LOAD(scores, i)
#define DELTA(i) LOAD(deltas, i)
#define FACTOR(i) exp(LOAD(deltas, i))
#define ANCHOR(i) LOAD(anchors, i)
#define IMAGE(i) LOAD(image_info, i)
#define STORE_SCORE(i, v) STORE(scores_out, i, v)
#define STORE_CORNER(i, v) STORE(boxes_out, i, v)
#else
#define SCORE(i) ((float)(scores[i] - zeros.x) * scales.x)
#define DELTA(i) ((float)(deltas[i] - zeros.y) * scales.y)
#define FACTOR(i) exponentials[(uchar)deltas[i]]
#define ANCHOR(i) ((float)anchors[i] * scales.z)
#define IMAGE(i) ((float)image_info[i] * scales.w)
#define STORE_SCORE(i, v) STORE_SAT(scores_out, i, quantized(v, out_scales.x, score_zero))
#define STORE_CORNER(i, v) (boxes_out[i] = convert_ushort_sat(quantized(v, out_scales.y, 0)))
#endif

kernel void proposals_transform(
    global const T *scores, global const T *deltas, global const ANCHOR_T *anchors, global const BOX_T *image_info,
    global const float *exponentials, global float *real_scores, global float *real_boxes, global uchar *alive, global int *status,
    int4 sizes, int4 score_strides, int4 delta_strides, float2 distances, float min_size, float4 scales, int4 zeros)
{
    const int i = (int)get_global_id(0), b = (int)get_global_id(1), n = sizes.x * sizes.y * sizes.z;
    if (i >= n)
        return;
    const int anchor = i % sizes.z, x = i / sizes.z % sizes.y, y = i / sizes.z / sizes.y;
    const float shift_x = (float)x * distances.y, shift_y = (float)y * distances.x;
    const float4 box = (float4)(ANCHOR(anchor * 4) + shift_x, ANCHOR(anchor * 4 + 1) + shift_y, ANCHOR(anchor * 4 + 2) + shift_x,
                                ANCHOR(anchor * 4 + 3) + shift_y);
    if (!has_order(box))
        atomic_or(status + 1, 1);
    const int channel = delta_strides.w;
    const int from = b * delta_strides.x + y * delta_strides.y + x * delta_strides.z + anchor * 4 * channel;
    const float2 delta = (float2)(DELTA(from), DELTA(from + channel));
    const float2 factor = (float2)(FACTOR(from + 2 * channel), FACTOR(from + 3 * channel));
    const float height = IMAGE(b * 2), width = IMAGE(b * 2 + 1);
    const float4 moved = moved_box(box, delta, factor, height, width);
    const float2 sides = moved.zw - moved.xy, centre = moved.xy + sides * 0.5f;
    const int to = b * n + i;
    real_scores[to] = SCORE(b * score_strides.x + y * score_strides.y + x * score_strides.z + anchor * score_strides.w);
    vstore4(moved, to, real_boxes);
    alive[to] = sides.x > min_size && sides.y > min_size && centre.x < width && centre.y < height;
}

kernel void proposals_gather(
    global const float *real_scores, global const float *real_boxes, global const int *kept, global const int *kept_count,
    global int *status, global T *scores_out, global BOX_T *boxes_out, global int *batch_out, int n, int room, int batches,
    float2 out_scales, int score_zero)
{
    const int i = (int)get_global_id(0), b = (int)get_global_id(1);
    int before = 0, total = 0;
    for (int other = 0; other < batches; ++other) {
        before += other < b ? kept_count[other] : 0;
        total += kept_count[other];
    }
    if (i == 0 && b == 0)
        status[0] = total;
    if (i >= room || i >= kept_count[b])
        return;
    const int from = b * n + kept[b * room + i], to = before + i;
    STORE_SCORE(to, real_scores[from]);
    for (int corner = 0; corner < 4; ++corner)
        STORE_CORNER(to * 4 + corner, real_boxes[from * 4 + corner]);
    batch_out[to] = b;
}

// SPDX-License-Identifier: Apache-2.0
// detection_limit.cl: BOX_WITH_NMS_LIMIT before and after the suppression (detection_nms.cl), one list for each class but the first.
// Maths    limit_candidates: real scores and boxes, candidates: score > threshold
//          limit_select: of each run of a batch the max_boxes best boxes, of equal ones the first by class and order of keeping
//          limit_gather: what was selected, by run, class and falling score
// Tensors  scores of T [rois, classes], boxes of BOX_T [rois, classes, 4], batch_index int [rois]; list = class - 1
//          real_scores float, alive uchar [lists, rois], real_boxes float [rois, classes, 4]
//          kept int [lists, rois], kept_count int [lists], runs int [rois]: of detection_nms.cl; selected uchar [lists, rois]
//          outputs have room for lists * rois boxes
//          status int [2]: number of boxes, 1 where a box has corners in the wrong order; 0 before
// Units    scales (scores, boxes, scores_out), score_zero, score_zero_out; not used by float
// Defines  T: float | half | uchar | char (required); BOX_T: T, or ushort for 8-bit types (required)
// Launch   limit_candidates: global (>= classes, rois); limit_select, limit_gather: global (>= rois, lists); local (64, 1)
//          extra items return
// Exact    8-bit: as float32 operations rounded one by one
#ifndef T
#error "detection_limit.cl: define T"
#endif
#ifndef BOX_T
#error "detection_limit.cl: define BOX_T"
#endif

#include "common/types.h"
#include "common/real.h"
#include "common/boxes.h"

#if T_IS_FLOAT
#define SCORE(i) LOAD(scores, i)
#define CORNER(i) LOAD(boxes, i)
#define STORE_SCORE(i, v) STORE(scores_out, i, v)
#define COPY_CORNER(to, from) STORE(boxes_out, to, LOAD(boxes, from))
#else
#define SCORE(i) ((float)(scores[i] - score_zero) * scales.x)
#define CORNER(i) ((float)boxes[i] * scales.y)
#define STORE_SCORE(i, v) STORE_SAT(scores_out, i, quantized(v, scales.z, score_zero_out))
#define COPY_CORNER(to, from) (boxes_out[to] = boxes[from])
#endif

kernel void limit_candidates(
    global const T *scores, global const BOX_T *boxes, global float *real_scores, global float *real_boxes, global uchar *alive,
    global int *status, int rois, int classes, float score_threshold, float4 scales, int score_zero)
{
    const int label = (int)get_global_id(0), roi = (int)get_global_id(1), at = roi * classes + label;
    if (label >= classes)
        return;
    const float4 box = (float4)(CORNER(at * 4), CORNER(at * 4 + 1), CORNER(at * 4 + 2), CORNER(at * 4 + 3));
    vstore4(box, at, real_boxes);
    if (!has_order(box))
        atomic_or(status + 1, 1);
    if (label == 0)
        return;
    const float score = SCORE(at);
    real_scores[(label - 1) * rois + roi] = score;
    alive[(label - 1) * rois + roi] = score > score_threshold;
}

// Where a box stands: by `first`, then falling score, then place.
static inline int comes_before(int first, int score, int place, int other_first, int other_score, int other_place)
{
    return first != other_first ? first < other_first : score != other_score ? score > other_score : place < other_place;
}

kernel void limit_select(
    global const float *real_scores, global const int *kept, global const int *kept_count, global const int *runs,
    global uchar *selected, global int *status, int rois, int lists, int max_boxes)
{
    const int i = (int)get_global_id(0), list = (int)get_global_id(1);
    if (i >= rois || i >= kept_count[list])
        return;
    const int roi = kept[list * rois + i], run = runs[roi], place = list * rois + i;
    const int score = order_of_score(real_scores[list * rois + roi]);
    int rank = 0;
    for (int l = 0; l < lists && max_boxes >= 0; ++l)
        for (int k = 0; k < kept_count[l]; ++k) {
            const int other = kept[l * rois + k];
            rank += runs[other] == run
                    && comes_before(0, order_of_score(real_scores[l * rois + other]), l * rois + k, 0, score, place);
        }
    selected[place] = max_boxes < 0 || rank < max_boxes;
    if (selected[place])
        atomic_inc(status);
}

kernel void limit_gather(
    global const BOX_T *boxes, global const int *batch_index, global const float *real_scores, global const int *kept,
    global const int *kept_count, global const int *runs, global const uchar *selected, global const int *status, global T *scores_out,
    global BOX_T *boxes_out, global int *classes_out, global int *batch_out, int rois, int lists, float4 scales, int score_zero_out)
{
    const int i = (int)get_global_id(0), list = (int)get_global_id(1);
    if (i >= rois || status[0] == 0 || i >= kept_count[list] || !selected[list * rois + i])
        return;
    const int roi = kept[list * rois + i], run = runs[roi];
    const float real_score = real_scores[list * rois + roi];
    const int score = order_of_score(real_score);
    int to = 0;
    for (int l = 0; l < lists; ++l)
        for (int k = 0; k < kept_count[l]; ++k) {
            const int other = kept[l * rois + k];
            if (!selected[l * rois + k])
                continue;
            if (l == list)
                to += comes_before(runs[other], order_of_score(real_scores[l * rois + other]), k, run, score, i);
            else
                to += comes_before(runs[other], 0, l, run, 0, list);
        }
    STORE_SCORE(to, real_score);
    for (int corner = 0; corner < 4; ++corner)
        COPY_CORNER(to * 4 + corner, (roi * (lists + 1) + list + 1) * 4 + corner);
    classes_out[to] = list + 1;
    batch_out[to] = batch_index[roi];
}

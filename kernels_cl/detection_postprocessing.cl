// SPDX-License-Identifier: Apache-2.0
// detection_postprocessing.cl: DETECTION_POSTPROCESSING before and after the suppression (detection_nms.cl).
// Maths    decode: anchor (centre y, x, height, width) moved by deltas / scales and scaled by exp(delta / scale) to y1, x1, y2, x2
//          regular: a list for each batch and class but the first; postprocessing_best: the best detections of all lists of a batch
//          fast: a list for each batch, by the greatest score of any class; postprocessing_classes: the best classes of what was kept
//          of equal scores the first wins
// Tensors  scores of T [batches, anchors, classes], deltas of T [batches, anchors, depth], anchors of T [anchors, 4]
//          real_scores float, alive uchar [lists, anchors]; real_boxes float [batches, anchors, 4]
//          kept int [lists, room], kept_count int [lists]
//          scores_out, boxes_out of T [batches, rows], [batches, rows, 4], classes_out int [batches, rows], count_out int [batches];
//          rows without a detection are not written
// Units    sizes (anchors, classes, rows, room); labels count from first_label
// Defines  T: float | half (required)
// Launch   postprocessing_decode: global (>= anchors, batches); postprocessing_best: global (>= room, batches * (classes - 1))
//          postprocessing_classes: global (>= room * (classes - 1), batches); local (64, 1); extra items return
// Exact    no
#ifndef T
#error "detection_postprocessing.cl: define T"
#endif

#include "common/types.h"
#include "common/real.h"
#include "common/boxes.h"

kernel void postprocessing_decode(
    global const T *scores, global const T *deltas, global const T *anchors, global float *real_scores, global float *real_boxes,
    global uchar *alive, int4 sizes, int depth, int regular, float4 scales, float score_threshold)
{
    const int a = (int)get_global_id(0), b = (int)get_global_id(1), n = sizes.x, classes = sizes.y, at = b * n + a;
    if (a >= n)
        return;
    const int from = at * depth;
    const float2 sides = (float2)(LOAD(anchors, a * 4 + 2), LOAD(anchors, a * 4 + 3));
    const float2 delta = (float2)(LOAD(deltas, from), LOAD(deltas, from + 1));
    const float2 growth = (float2)(LOAD(deltas, from + 2), LOAD(deltas, from + 3)) / scales.zw;
    const float2 centres = (float2)(LOAD(anchors, a * 4), LOAD(anchors, a * 4 + 1)) + sides * delta / scales.xy;
    const float2 halves = sides * exp(growth) * 0.5f;
    vstore4((float4)(centres - halves, centres + halves), at, real_boxes);
    float greatest = LOAD(scores, at * classes + 1);
    for (int label = 1; label < classes; ++label) {
        const float score = LOAD(scores, at * classes + label);
        const int to = (b * (classes - 1) + label - 1) * n + a;
        greatest = score > greatest || score != score ? score : greatest;
        if (regular) {
            real_scores[to] = score;
            alive[to] = score > score_threshold;
        }
    }
    if (!regular) {
        real_scores[at] = greatest;
        alive[at] = greatest > score_threshold;
    }
}

#define STORE_DETECTION(to, score, from, label)                                  \
    {                                                                            \
        STORE(scores_out, to, score);                                            \
        for (int corner = 0; corner < 4; ++corner)                               \
            STORE(boxes_out, (to) * 4 + corner, real_boxes[(from) * 4 + corner]); \
        classes_out[to] = (label) - 1 + first_label;                             \
    }

kernel void postprocessing_best(
    global const float *real_scores, global const float *real_boxes, global const int *kept, global const int *kept_count,
    global T *scores_out, global T *boxes_out, global int *classes_out, global int *count_out, int4 sizes, int first_label)
{
    const int i = (int)get_global_id(0), list = (int)get_global_id(1), n = sizes.x, lists = sizes.y - 1, rows = sizes.z, room = sizes.w;
    const int b = list / lists, first = b * lists;
    const int is_kept = i < room && i < kept_count[list], anchor = is_kept ? kept[list * room + i] : 0;
    const float real_score = real_scores[list * n + anchor];
    const int score = order_of_score(real_score);
    int rank = 0, total = 0;
    for (int l = first; l < first + lists; ++l) {
        total += kept_count[l];
        for (int k = 0; is_kept && k < kept_count[l]; ++k) {
            const int other = order_of_score(real_scores[l * n + kept[l * room + k]]);
            rank += other > score || (other == score && (l < list || (l == list && k < i)));
        }
    }
    if (i == 0 && list == first)
        count_out[b] = min(total, rows);
    if (!is_kept || rank >= rows)
        return;
    STORE_DETECTION(b * rows + rank, real_score, b * n + anchor, list - first + 1)
}

kernel void postprocessing_classes(
    global const T *scores, global const float *real_boxes, global const int *kept, global const int *kept_count, global T *scores_out,
    global T *boxes_out, global int *classes_out, global int *count_out, int4 sizes, int first_label, int labels_per_box)
{
    const int item = (int)get_global_id(0), b = (int)get_global_id(1), n = sizes.x, classes = sizes.y, rows = sizes.z, room = sizes.w;
    const int label = item % (classes - 1) + 1, i = item / (classes - 1);
    if (item == 0)
        count_out[b] = kept_count[b] * labels_per_box;
    if (i >= room || i >= kept_count[b])
        return;
    const int from = b * n + kept[b * room + i];
    const float real_score = LOAD(scores, from * classes + label);
    const int score = order_of_score(real_score);
    int rank = 0;
    for (int l = 1; l < classes; ++l) {
        const int other = order_of_score(LOAD(scores, from * classes + l));
        rank += other > score || (other == score && l < label);
    }
    if (rank < labels_per_box)
        STORE_DETECTION(b * rows + i * labels_per_box + rank, real_score, from, label)
}

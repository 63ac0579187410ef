// SPDX-License-Identifier: Apache-2.0
// detection_nms.cl: non-maximum suppression of lists of boxes, and the best scores of a list.
// Maths    nms: again and again the box with the greatest score is kept (of equal ones the first), and others lose by their overlap
//          with it; kind 0: score * (overlap < iou ? 1 : 0), 1: * (overlap < iou ? 1 : 1 - overlap), 2: * exp(-overlap^2 / sigma), out
//          below `least`; 3: out at overlap >= iou, scores stay
//          keep_best: of each list all but the `most` greatest scores (of equal ones the first) fall out
// Tensors  scores float, alive uchar [lists, n]; boxes float [.., 4], box i of a list l at
//          l / lists_per_set * set_stride + l % lists_per_set * list_stride + i * box_stride + offset boxes
//          kept int [lists, room]: indices in the order of keeping; kept_count int [lists]
//          batch_index int [n]: where has_runs, each run of equal ones is a list of its own (results one after the other);
//          runs int [n]: the number of each box's run, written by the first list
// Units    box_strides (set_stride, list_stride, box_stride, offset); limit: boxes kept of a run, < 0 for all; room >= what can be kept
// Defines  GROUP: work-items of a group of VECTOR_KERNEL
// Launch   global (GROUP, lists), local (GROUP, 1); one group per list
// Exact    yes, but for exp
#define T float // scores are real numbers here

#include "common/types.h"
#include "common/real.h"
#include "common/boxes.h"

#define ALL_MEMORY (CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define LEAST_ORDER (-2147483647 - 1)
#define KIND_LINEAR 1
#define KIND_GAUSSIAN 2
#define KIND_REMOVE 3

typedef struct {
    int kind;
    float iou, sigma, least;
} Suppression;

// The score after a better box has been kept; `alive` is cleared where the box falls out.
static inline float suppressed(const Suppression *s, float score, float overlap, uchar *alive)
{
    if (s->kind == KIND_REMOVE) {
        *alive = !(overlap >= s->iou);
        return score;
    }
    const float other = s->kind == KIND_LINEAR ? 1.0f - overlap : 0.0f;
    score *= s->kind == KIND_GAUSSIAN ? exp(divide(-overlap * overlap, s->sigma)) : overlap < s->iou ? 1.0f : other;
    *alive = !(score < s->least);
    return score;
}

// Lowering by NaN makes a score the first to go, removing leaves NaN to the end.
static inline int order_among(const Suppression *s, float score)
{
    return score != score && s->kind != KIND_REMOVE ? 2147483647 : order_of_score(score);
}

VECTOR_KERNEL void nms(
    global float *scores, global uchar *alive, global const float *boxes, global int *kept, global int *kept_count,
    global const int *batch_index, global int *runs, int n, int room, int4 box_strides, int lists_per_set, int has_runs, int limit, int kind,
    float iou, float sigma, float least)
{
    local int shared_order[GROUP], shared_at[GROUP];
    const int list = (int)get_global_id(1), item = (int)get_local_id(0);
    const Suppression s = {kind, iou, sigma, least};
    const int most = limit < 0 ? n : limit; // a loop until `count == limit` is miscompiled by rusticl of Mesa 22.3 for limit -1
    scores += list * n;
    alive += list * n;
    kept += list * room;
    boxes += (list / lists_per_set * box_strides.x + list % lists_per_set * box_strides.y + box_strides.w) * 4;
    int total = 0, run = 0;
    for (int from = 0, to; from < n; from = to, ++run) {
        for (to = from + 1; to < n && (!has_runs || batch_index[to] == batch_index[from]); ++to)
            ;
        if (has_runs && list == 0)
            for (int i = from + item; i < to; i += GROUP)
                runs[i] = run;
        int last = -1;
        for (int count = 0; count < most; ++count) {
            const float4 best_box = vload4(max(last, 0) * box_strides.z, boxes);
            int order = LEAST_ORDER, best = n;
            for (int i = from + item; i < to; i += GROUP) {
                uchar lives = alive[i];
                if (!lives)
                    continue;
                float score = scores[i];
                if (i == last) {
                    lives = 0;
                } else if (last >= 0) {
                    score = suppressed(&s, score, intersection_over_union(best_box, vload4(i * box_strides.z, boxes)), &lives);
                    scores[i] = score;
                }
                alive[i] = lives;
                const int own = order_among(&s, score);
                if (lives && (own > order || best == n)) {
                    order = own;
                    best = i;
                }
            }
            shared_order[item] = order;
            shared_at[item] = best;
            GROUP_BARRIER(ALL_MEMORY);
            for (int i = 0; i < GROUP; ++i)
                if (shared_at[i] < n
                    && (best == n || shared_order[i] > order || (shared_order[i] == order && shared_at[i] < best))) {
                    order = shared_order[i];
                    best = shared_at[i];
                }
            GROUP_BARRIER(ALL_MEMORY);
            if (best == n)
                break;
            if (item == 0)
                kept[total] = best;
            ++total;
            last = best;
        }
    }
    if (item == 0)
        kept_count[list] = total;
}

static inline int sum_of_group(int value, local int *shared)
{
#if GROUP == 1
    return value;
#else
    GROUP_BARRIER(ALL_MEMORY);
    shared[get_local_id(0)] = value;
    GROUP_BARRIER(ALL_MEMORY);
    int sum = 0;
    for (int i = 0; i < GROUP; ++i)
        sum += shared[i];
    return sum;
#endif
}

// Number of the work-item's scores, in from..to, that are above an order.
static inline int count_above(global const float *scores, int from, int to, int order)
{
    int count = 0;
    for (int i = from; i < to; ++i)
        count += order_of_score(scores[i]) > order;
    return count;
}

VECTOR_KERNEL void keep_best(global const float *scores, global uchar *alive, int n, int most)
{
    local int shared[GROUP];
    const int list = (int)get_global_id(1), item = (int)get_local_id(0), part = (n + GROUP - 1) / GROUP;
    const int from = min(item * part, n), to = min(from + part, n);
    scores += list * n;
    alive += list * n;
    // The least order that fewer than `most` scores exceed; bits of the distance from the least int, from the highest on.
    uint distance = 0;
    for (int bit = 31; bit >= 0; --bit) {
        const uint probe = distance | (1u << bit);
        const int order = (int)((probe - 1u) ^ 0x80000000u);
        if (sum_of_group(count_above(scores, from, to, order), shared) >= most)
            distance = probe;
    }
    const int threshold = (int)(distance ^ 0x80000000u);
    const int above = count_above(scores, from, to, threshold);
    int equal = 0;
    for (int i = from; i < to; ++i)
        equal += order_of_score(scores[i]) == threshold;
    const int room = most - sum_of_group(above, shared);
    int before = 0;
#if GROUP > 1
    GROUP_BARRIER(ALL_MEMORY);
    shared[item] = equal;
    GROUP_BARRIER(ALL_MEMORY);
    for (int i = 0; i < item; ++i)
        before += shared[i];
#endif
    for (int i = from; i < to; ++i) {
        const int order = order_of_score(scores[i]);
        if (order < threshold || (order == threshold && before++ >= room))
            alive[i] = 0;
    }
}

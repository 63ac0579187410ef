// SPDX-License-Identifier: Apache-2.0
// boxes.h: boxes as two opposite corners (float4: x1, y1, x2, y2, or y first), and the order of their scores.
// Defines  common/real.h (before inclusion)

static inline int has_order(float4 box)
{
    return box.x <= box.z && box.y <= box.w; // fails for NaN
}

// Box x1, y1, x2, y2 moved by deltas dx, dy and scaled by factors of width and height, cut to an image; keeps NaN.
static inline float4 moved_box(float4 box, float2 deltas, float2 factors, float height, float width)
{
    const float2 sides = box.zw - box.xy;
    const float2 centres = (box.xy + box.zw) * 0.5f + deltas * sides;
    const float2 halves = factors * sides * 0.5f;
    const float4 moved = (float4)(centres - halves, centres + halves);
    const float4 above = moved < 0.0f ? (float4)0.0f : moved, limit = (float4)(width, height, width, height);
    return above > limit ? limit : above;
}

// Overlap of two boxes; NaN where both are empty.
static inline float intersection_over_union(float4 a, float4 b)
{
    const float2 sides = fmax(fmin(a.zw, b.zw) - fmax(a.xy, b.xy), 0.0f);
    const float intersection = sides.x * sides.y;
    const float2 own = a.zw - a.xy, others = b.zw - b.xy;
    return divide(intersection, own.x * own.y + others.x * others.y - intersection);
}

// An integer in the order of the score; NaN is the least, the two zeros are equal.
static inline int order_of_score(float score)
{
    const int bits = as_int(score);
    return score != score ? -2147483647 - 1 : score == 0.0f ? 0 : bits ^ ((bits >> 31) & 2147483647);
}

// SPDX-License-Identifier: Apache-2.0
// heatmap.cl: HEATMAP_MAX_KEYPOINT.
// Maths    the first greatest pixel of a heatmap, moved by the step to the top of the quadratic through its 3 x 3 neighbourhood (at an
//          edge the inner neighbour stands for both) unless its Hessian has |determinant| < tolerance * (1 + product of the diagonal);
//          steps are cut to max_step; score: the quadratic there; keypoint = (pixel + step + 0.5) / size * box size + box origin
//          8-bit: all of it on scale * (q - zero_point), stored by round half away from zero
// Tensors  heatmaps of T, by strides (box, y, x, keypoint); boxes of BOX_T [boxes, 4] (x1, y1, x2, y2)
//          scores of T [boxes, keypoints], keypoints of BOX_T [boxes, keypoints, 2] (x, y)
// Units    sizes (pixels along a side, keypoints, work-items, 0); scales (heatmaps, scores, boxes, keypoints), zeros (heatmaps,
//          scores, 0, 0): used by 8-bit types only, whose boxes are ushort with zero point 0
// Defines  T: float | half | uchar | char (required); BOX_T: T, or ushort for 8-bit types (required)
// Launch   global (>= boxes * keypoints), local (64); one work-item per keypoint; extra items return
// Exact    8-bit: as float32 operations rounded one by one; float: the same, of half rounded at the end
// Errors   corners of boxes out of order are complained of (common/fault.h)
#ifndef T
#error "heatmap.cl: define T"
#endif
#ifndef BOX_T
#error "heatmap.cl: define BOX_T"
#endif

#include "common/types.h"
#include "common/fault.h"
#include "common/real.h"

#if T_IS_FLOAT
#define REAL(p, i, scale, zero) LOAD(p, i)
#define BOX(p, i, scale) LOAD(p, i)
#define STORE_SCORE(p, i, v, scale, zero) STORE(p, i, v)
#define STORE_POINT(p, i, v, scale) STORE(p, i, v)
#define IS_NAN(v) isnan(v)
#else
#define REAL(p, i, scale, zero) ((float)((p)[i] - (zero)) * (scale))
#define BOX(p, i, scale) ((float)(p)[i] * (scale))
#define STORE_SCORE(p, i, v, scale, zero) ((p)[i] = JOIN(JOIN(convert_, T), _sat)(quantized(v, scale, zero)))
#define STORE_POINT(p, i, v, scale) ((p)[i] = convert_ushort_sat(quantized(v, scale, 0)))
#define IS_NAN(v) 0
#endif

static inline int mirrored(int place, int size)
{
    return place < 0 ? 1 : place >= size ? size - 2 : place;
}

kernel void heatmap_max_keypoint(global const T *heatmaps, global const BOX_T *boxes, global T *scores, global BOX_T *keypoints,
    int4 strides, int4 sizes, float4 scales, int4 zeros, float tolerance, float max_step, global int *fault, int number)
{
    const int item = (int)get_global_id(0), size = sizes.x;
    if (item >= sizes.z)
        return;
    const int box = item / sizes.y;
    const int start = box * strides.x + item % sizes.y * strides.w;
    int row = 0, column = 0;
    COMPUTE_T best = LOAD(heatmaps, start);
    for (int y = 0; y < size; ++y)
        for (int x = 0; x < size; ++x) {
            const COMPUTE_T value = LOAD(heatmaps, start + y * strides.y + x * strides.z);
            const int better = value > best || (IS_NAN(best) && !IS_NAN(value));
            row = better ? y : row;
            column = better ? x : column;
            best = better ? value : best;
        }

    float grid[3][3];
    for (int j = 0; j < 3; ++j)
        for (int i = 0; i < 3; ++i) {
            const int y = mirrored(row + j - 1, size), x = mirrored(column + i - 1, size);
            grid[j][i] = REAL(heatmaps, start + y * strides.y + x * strides.z, scales.x, zeros.x);
        }
    const float centre = grid[1][1];
    const float slope_x = (grid[1][0] - grid[1][2]) * 0.5f, slope_y = (grid[0][1] - grid[2][1]) * 0.5f;
    const float xx = grid[1][0] - 2.0f * centre + grid[1][2], yy = grid[0][1] - 2.0f * centre + grid[2][1];
    const float xy = (grid[2][2] - grid[2][0] - grid[0][2] + grid[0][0]) * 0.25f;
    const float diagonal = xx * yy, determinant = diagonal - xy * xy;
    float dx = 0.0f, dy = 0.0f;
    if (!(fabs(determinant) < tolerance + tolerance * diagonal)) { // nor NaN
        dx = divide(yy * slope_x - xy * slope_y, determinant);
        dy = divide(xx * slope_y - xy * slope_x, determinant);
    }
    const float longest = fmax(fabs(dx), fabs(dy));
    if (longest > max_step) {
        const float factor = divide(max_step, longest);
        dx *= factor;
        dy *= factor;
    }
    const float curvature = (xx * dx + xy * dy) * dx + (xy * dx + yy * dy) * dy;
    STORE_SCORE(scores, item, centre - slope_x * dx - slope_y * dy + curvature * 0.5f, scales.y, zeros.y);

    const float x1 = BOX(boxes, box * 4, scales.z), y1 = BOX(boxes, box * 4 + 1, scales.z);
    const float width = BOX(boxes, box * 4 + 2, scales.z) - x1, height = BOX(boxes, box * 4 + 3, scales.z) - y1;
    if (width < 0.0f || height < 0.0f)
        complain(fault, number);
    const float px = divide((float)column + dx + 0.5f, (float)size) * width + x1;
    const float py = divide((float)row + dy + 0.5f, (float)size) * height + y1;
    STORE_POINT(keypoints, item * 2, px, scales.w);
    STORE_POINT(keypoints, item * 2 + 1, py, scales.w);
}

// SPDX-License-Identifier: Apache-2.0
// matmul_narrow.cl: FULLY_CONNECTED, 1x1 CONV_2D and BATCH_MATMUL of few rows on GPUs: a group of work-items shares each sum.
// Maths    y[row, column] = act(bias[column] + sum over terms of (x[row, term] - zero_in) * (w[column, term] - zero_w)  [+ residual])
//          quantised: act as in conv_2d.cl; int wraps
// Tensors  as common/matmul.h says
// Units    strides and sizes in elements
// Defines  T, FILTER_T, QUANTIZED: as common/matmul.h says (required)
// Launch   global (64 * columns * rows * groups), local (64); one group of work-items per element, columns fastest
// Needs    one tap and no padding; terms dense in src and weights (src_strides.w = filter_layout.y = 1)
//          SOURCE_VECTORS and FILTER_VECTORS, both or none: terms and all strides are multiples of 4
// Exact    quantised and int: yes; float: every 64th term, or four of every 256, is summed apart, then these pairwise
#include "common/matmul.h"

#define ITEMS 64

#if T_IS_FLOAT
#define SUM_T float
#define TO_SUM(v) (v)
#define MULTIPLY_ADD(a, b, sum) fma(a, b, sum)
#elif QUANTIZED
#define SUM_T int
#define TO_SUM(v) (v)
#define MULTIPLY_ADD(a, b, sum) ((a) * (b) + (sum))
#else
#define SUM_T uint
#define TO_SUM(v) as_uint(v)
#define MULTIPLY_ADD(a, b, sum) ((a) * (b) + (sum))
#endif
#define SUM_T4 JOIN(SUM_T, 4)

#if T_IS_HALF
#define LOAD_4(p, i, type) HALVES(4, (p) + (i))
#elif T_IS_FLOAT
#define LOAD_4(p, i, type) (*(global const JOIN(type, 4) *)((p) + (i)))
#elif QUANTIZED
#define LOAD_4(p, i, type) convert_int4(*(global const JOIN(type, 4) *)((p) + (i)))
#else
#define LOAD_4(p, i, type) as_uint4(*(global const JOIN(type, 4) *)((p) + (i)))
#endif

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void matmul_narrow(PARAMETERS)
{
    local SUM_T parts[ITEMS];
    const Geometry g = {src_strides, input, output, window, steps, filter_layout.z, filter_layout.w};
    const int rows = row_count(output), columns = output.z, flags = filter_layout.w, lane = (int)get_local_id(0), task = (int)get_group_id(0);
    const int column = task % columns, row = task / columns % rows, group = task / columns / rows;
    Pixel pixel;
    find_pixel(&pixel, row, &g);
    src += group * group_strides.x + position(pixel, 0, 0, &g);
    weights += group * group_strides.y + column * filter_layout.x;
#if QUANTIZED
    const int zero_source = zeros.x, zero_filter = zeros.y;
#endif
    SUM_T sum = 0;
    if (flags & SOURCE_VECTORS) {
        SUM_T4 sums = (SUM_T4)(0);
        for (int k = lane * 4; k < g.terms; k += ITEMS * 4)
            sums = MULTIPLY_ADD(CENTRED(LOAD_4(src, k, T), zero_source), CENTRED(LOAD_4(weights, k, FILTER_T), zero_filter), sums);
        sum = sums.x + sums.y + sums.z + sums.w;
    } else {
        for (int k = lane; k < g.terms; k += ITEMS)
            sum = MULTIPLY_ADD(
                TO_SUM(CENTRED(LOAD(src, k), zero_source)), TO_SUM(CENTRED(LOAD_FILTER(weights, k), zero_filter)), sum);
    }
    parts[lane] = sum;
    for (int half_of = ITEMS / 2; half_of > 0; half_of /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_of)
            parts[lane] += parts[lane + half_of];
    }
    if (lane == 0) {
        const int to = group * group_strides.z + output_offset(row, output, dst_strides, flags) + column * dst_strides.w;
        Channel channel;
        READ_CHANNEL(channel, group * group_strides.w + column);
        const COMPUTE_T total = (COMPUTE_T)parts[0];
        STORE(dst, to, RESULT(total + channel.bias, channel, RESIDUAL_AT(to)));
    }
}

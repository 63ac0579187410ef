// SPDX-License-Identifier: Apache-2.0
// recurrent.cl: the part of LSTM and RNN cells that does not recur: the inputs of all time steps times their weights.
// Maths    sums[r,c] = (accumulate ? sums[r,c] : 0) + sum over k of src[r,k] * weights[k,c]
// Tensors  src of T [rows, depth]; weights of T [depth, columns]; sums float [rows, columns]
// Defines  T: float | half (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   project_inputs: global (>= columns / LANES, ceil(rows / ITEM_ROWS)), local (GROUP, 1); extra items return
//          project_few: global (any, rows), local (GROUP, 1); for few rows of many weights: each row reads all of them
// Needs    columns a multiple of 16
// Exact    fused multiply-adds in the order of k
#ifndef T
#error "recurrent.cl: define T"
#endif

#include "common/types.h"
#include "common/recurrent.h"

ADD_PRODUCTS(add_products_of_input, T, LOAD)

#define ITEM_ROWS 8 // that a work-item reads the weights once for

VECTOR_KERNEL void project_inputs(
    global const T *src, global const T *weights, global float *sums, int rows, int depth, int columns, int accumulate)
{
    FLUSH_DENORMALS;
    const int c = (int)get_global_id(0) * LANES, first_row = (int)get_global_id(1) * ITEM_ROWS;
    if (c >= columns)
        return;
    if (first_row + ITEM_ROWS <= rows) {
        LANES_T sum[ITEM_ROWS];
#pragma unroll
        for (int r = 0; r < ITEM_ROWS; ++r)
            sum[r] = accumulate ? UNITS(sums, (first_row + r) * columns + c) : (LANES_T)0.0f;
        for (int k = 0; k < depth; ++k) {
            const LANES_T weight = WEIGHTS(weights, k * columns + c);
#pragma unroll
            for (int r = 0; r < ITEM_ROWS; ++r)
                sum[r] = fma((LANES_T)LOAD(src, (first_row + r) * depth + k), weight, sum[r]);
        }
#pragma unroll
        for (int r = 0; r < ITEM_ROWS; ++r)
            SET_UNITS(sums, (first_row + r) * columns + c, sum[r]);
        return;
    }
    for (int row = first_row; row < rows; ++row) {
        LANES_T sum = accumulate ? UNITS(sums, row * columns + c) : (LANES_T)0.0f;
        for (int k = 0; k < depth; ++k)
            sum = fma((LANES_T)LOAD(src, row * depth + k), WEIGHTS(weights, k * columns + c), sum);
        SET_UNITS(sums, row * columns + c, sum);
    }
}

VECTOR_KERNEL void project_few(
    global const T *src, global const T *weights, global float *sums, int rows, int depth, int columns, int accumulate)
{
    FLUSH_DENORMALS;
    const int row = (int)get_global_id(1), first = (int)get_global_id(0), stride = (int)get_global_size(0);
    if (!accumulate)
        EVERY_UNIT(c, columns, first, stride)
            SET_UNITS(sums, row * columns + c, (LANES_T)0.0f);
    add_products_of_input(sums + row * columns, src + row * depth, weights, depth, columns, first, stride);
}

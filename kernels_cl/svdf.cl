// SPDX-License-Identifier: Apache-2.0
// svdf.cl: SVDF: every filter's newest activation, then the memories reduced over time and rank.
// Maths    newest[b,f] = sum over k of x[b,k] * weights_feature[f,k]; memory[b,f,..] = state, its last place newest[b,f]
//          y[b,u] = clamp(bias[u] + sum over the rank's f, over m of memory[b,f,m] * weights_time[f,m], low, high)
//          state_out[b,f,m] = memory[b,f,m+1], 0 in the last place
// Tensors  src of T [batches, input_size]; weights_feature of T [num_filters, input_size]; newest float [batches, num_filters]
//          weights_time of T [num_filters, memory_size]; bias of T [units] (read if has_bias)
//          state_in, state_out of T [batches, num_filters, memory_size]; dst of T [batches, units]; filter = unit * rank + r
// Defines  T: float | half (required)
//          GROUP: see common/types.h
// Launch   svdf_feature: global (>= num_filters / per_item, batches), local (GROUP, 1); per_item filters per work-item
//          svdf_time: global (>= units, batches), local (64, 1); one work-item per unit
//          extra items return
// Exact    no; sums in float
#ifndef T
#error "svdf.cl: define T"
#endif

#include "common/types.h"
#include "common/activation.h"
#include "common/lanes.h"

VECTOR_KERNEL void svdf_feature(
    global const T *src, global const T *weights, global float *newest, int input_size, int num_filters, int per_item)
{
    const int first = (int)get_global_id(0) * per_item, b = (int)get_global_id(1), last = min(first + per_item, num_filters);
    for (int f = first; f < last; ++f) {
        float16 sums = 0.0f;
        int k = 0;
        for (; k + 16 <= input_size; k += 16)
            sums = fma(LOAD16(src, b * input_size + k), LOAD16(weights, f * input_size + k), sums);
        float sum = sum_of_lanes(sums);
        for (; k < input_size; ++k)
            sum = fma(LOAD(src, b * input_size + k), LOAD(weights, f * input_size + k), sum);
        newest[b * num_filters + f] = sum;
    }
}

kernel void svdf_time(
    global const float *newest, global const T *weights, global const T *bias, global const T *state_in, global T *state_out,
    global T *dst, int num_filters, int rank, int memory_size, int has_bias, float low, float high)
{
    const int u = (int)get_global_id(0), b = (int)get_global_id(1), units = num_filters / rank, last = memory_size - 1;
    if (u >= units)
        return;
    float total = has_bias ? LOAD(bias, u) : 0.0f;
    for (int f = u * rank; f < (u + 1) * rank; ++f) {
        const int memory = (b * num_filters + f) * memory_size;
        const float fresh = newest[b * num_filters + f];
        float sum = fresh * LOAD(weights, f * memory_size + last);
        for (int m = 0; m < last; ++m)
            sum = fma(LOAD(state_in, memory + m), LOAD(weights, f * memory_size + m), sum);
        for (int m = 1; m < last; ++m)
            STORE(state_out, memory + m - 1, LOAD(state_in, memory + m));
        if (last > 0)
            STORE(state_out, memory + last - 1, fresh);
        STORE(state_out, memory + last, 0.0f);
        total += sum;
    }
    STORE(dst, b * units + u, activate(total, low, high));
}

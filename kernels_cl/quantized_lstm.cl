// SPDX-License-Identifier: Apache-2.0
// quantized_lstm.cl: QUANTIZED_LSTM (char), QUANTIZED_16BIT_LSTM (uchar): one step of a cell in integers.
// Maths    gate sums in 16 bits, sigmoid and tanh by tables of all 65,536 codes, cell state in 16 bits; as TFLite's integer kernels
//          layer norm: mean with 10 fraction bits, 1 / deviation by Newton-Raphson steps in fixed point
// Tensors  src of T [batches, input_size], prev_output, dst of T [batches, output_size], prev_cell, cell short [batches, units]
//          input_weights, recurrent_weights of T [size, gates, padded_units]; biases int [gates, padded_units]
//          vectors short [k, padded_units]: peepholes, then norm weights, as far as there are any
//          projection of T [units, padded_outputs], projection_bias int [padded_outputs]; sums int [batches, 2, gates, padded_units]
//          (inputs, recurrent), hidden int [batches, units]: memory between the stages
//          gates: (input,) forget, cell, output; quantized_16bit_lstm has all four
// Units    shape (input_size, output_size, units, padded_units, gates, padded_outputs, 0, 0)
//          zeros (src, prev_output, weights, hidden); gate_factors int [4, 4, 2] from the input gate on: (mantissa, exponent) of inputs,
//          recurrent, peephole, norm; guards int [4]: what a variance below 1 becomes
//          factors (hidden, projection), variant (peephole, norm, projection: 0 | 1 | 2 with bias, exponent of the cell's scale)
//          clips (cell, projection), 0 for none; paddings are multiples of 16
// Defines  T: char | uchar (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   global (GROUP, batches), local (GROUP, 1); one group per batch
// Exact    yes
#ifndef T
#error "quantized_lstm.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/inverse_sqrt.h"

#define SUM_T long
#include "common/group_sum.h"

#if GROUP == 1
#define LANES 16
typedef int16 LANES_T;
#define LOAD_LANES(p, i) LOAD16(p, i)
#define SET_LANES(p, i, v) (*(global int16 *)((p) + (i)) = (v))
#else
#define LANES 1
typedef int LANES_T;
#define LOAD_LANES(p, i) LOAD(p, i)
#define SET_LANES(p, i, v) ((p)[i] = (v))
#endif

#define ONE 32767
#define FOR_UNITS(u, units) for (int u = (int)get_local_id(0); u < (units); u += GROUP)

static inline int saturated(int x)
{
    return clamp(x, -32768, 32767);
}

static inline int scaled(int x, int2 factor)
{
    return multiply_by_quantized_multiplier(x, factor.x, factor.y);
}

static inline int looked_up(global const short *table, int code)
{
    return table[(ushort)code];
}

// sums[columns] = sum over k of (src[k] - zero) * (weights[k, columns] - weight_zero)
static inline void set_products(
    global int *sums, global const T *src, int zero, global const T *weights, int weight_zero, int depth, int columns)
{
    for (int i = (int)get_local_id(0) * LANES; i < columns; i += GROUP * LANES) {
        LANES_T sum = 0;
        for (int k = 0; k < depth; ++k)
            sum += (LOAD(src, k) - zero) * (LOAD_LANES(weights, k * columns + i) - weight_zero);
        SET_LANES(sums, i, sum);
    }
}

// round(a * b / 2^15), ties towards plus infinity
static inline int high_product(int a, int b)
{
    return (a * b + (1 << 14)) >> 15;
}

VECTOR_KERNEL void quantized_16bit_lstm(
    global const T *src, global const T *prev_output, global const short *prev_cell, global const T *input_weights,
    global const T *recurrent_weights, global const int *biases, global short *cell, global T *dst, global int *sums,
    global const short *logistic, global const short *tanh_gate, global const short *tanh_cell, int8 shape, int4 zeros, int2 factor,
    int cell_integer_bits)
{
    const int b = (int)get_global_id(1), input_size = shape.s0, units = shape.s2, padded = shape.s3, columns = 4 * padded;
    global int *inputs = sums + b * 2 * columns, *recurrent = inputs + columns;
    set_products(inputs, src + b * input_size, zeros.x, input_weights, zeros.z, input_size, columns);
    set_products(recurrent, prev_output + b * units, zeros.y, recurrent_weights, zeros.z, units, columns);
    GROUP_BARRIER(CLK_GLOBAL_MEM_FENCE);
    FOR_UNITS(u, units) {
        int gate[4];
        for (int g = 0; g < 4; ++g) {
            const int at = g * padded + u;
            gate[g] = looked_up(g == 2 ? tanh_gate : logistic, saturated(scaled(biases[at] + inputs[at] + recurrent[at], factor)));
        }
        const int fresh = rounding_divide_by_pot(high_product(gate[0], gate[2]), cell_integer_bits);
        const int state = saturated(fresh + high_product(gate[1], prev_cell[b * units + u]));
        const int output = high_product(gate[3], looked_up(tanh_cell, state));
        cell[b * units + u] = (short)state;
        STORE(dst, b * units + u, clamp(rounding_divide_by_pot(output, 8), -128, 127) + 128);
    }
}

typedef struct {
    global int *inputs, *recurrent;
    global const int *biases;
    global const short *vectors;
    global const int *gate_factors, *guards;
    int units, padded, gates, peephole, norm;
} Gates;

#define INPUT_GATE 0
#define FORGET 1
#define CELL_GATE 2
#define OUTPUT_GATE 3

static inline int2 factor_of(const Gates *g, int gate, int which)
{
    return vload2(gate * 4 + which, g->gate_factors);
}

// The 16-bit sum of a gate for one unit, before the layer norm.
static inline int sum_of(const Gates *g, int gate, int u, int cell)
{
    const int row = gate + g->gates - 4, at = row * g->padded + u;
    const int bias = g->norm ? 0 : g->biases[at];
    int sum = saturated(scaled(g->inputs[at] + bias, factor_of(g, gate, 0)));
    sum = saturated(add_sat(scaled(g->recurrent[at], factor_of(g, gate, 1)), sum));
    if (g->peephole && gate != CELL_GATE) {
        const int peephole = g->vectors[(row - (gate == OUTPUT_GATE)) * g->padded + u];
        sum = saturated(add_sat(scaled(peephole * cell, factor_of(g, gate, 2)), sum));
    }
    return sum;
}

// Leaves a gate's sum of each unit in `inputs`, through the layer norm where there is one; for whole groups.
static inline void finish_gate(const Gates *g, int gate, global const short *cell, local long *shared)
{
    const int row = gate + g->gates - 4;
    long total = 0, squares = 0;
    FOR_UNITS(u, g->units) {
        const int sum = sum_of(g, gate, u, cell[u]);
        g->inputs[row * g->padded + u] = sum;
        total += sum;
        squares += sum * (long)sum;
    }
    if (!g->norm)
        return;
    const long mean = sum_of_group(total, shared) * 1024 / g->units;
    const long spread = sum_of_group(squares, shared) * ((1 << 20) / g->units) - mean * mean;
    const long variance = spread / (1 << 20);
    const int2 inverse = inverse_sqrt_multiplier(variance < 1 ? g->guards[gate] : (int)variance);
    const int norm_row = (g->peephole ? g->gates - 1 : 0) + row;
    const int2 factor = factor_of(g, gate, 3);
    FOR_UNITS(u, g->units) {
        const int at = row * g->padded + u;
        const int centred = 1024 * g->inputs[at] - (int)mean;
        const int normalized = multiply_by_quantized_multiplier(centred, inverse.x, -inverse.y);
        const long weighted = (long)normalized * g->vectors[norm_row * g->padded + u] + g->biases[at];
        const int rounded = (int)((weighted + (weighted > 0 ? 512 : -512)) / 1024);
        g->inputs[at] = saturated(multiply_by_quantized_multiplier(rounded, factor.x, factor.y + 12));
    }
}

VECTOR_KERNEL void quantized_lstm(
    global const T *src, global const T *prev_output, global const short *prev_cell, global const T *input_weights,
    global const T *recurrent_weights, global const int *biases, global const short *vectors, global const T *projection,
    global const int *projection_bias, global T *state_out, global short *cell, global T *dst, global int *sums, global int *hidden,
    global const short *logistic, global const short *tanh_gate, global const short *tanh_cell, global const int *gate_factors,
    global const int *guards, int8 shape, int4 zeros, int4 factors, int4 variant, int2 clips)
{
    local long shared[GROUP];
    const int b = (int)get_global_id(1), input_size = shape.s0, output_size = shape.s1, units = shape.s2, padded = shape.s3;
    const int gates = shape.s4, columns = gates * padded, padded_outputs = shape.s5;
    Gates g = {sums + b * 2 * columns, sums + (b * 2 + 1) * columns, biases, vectors, gate_factors, guards, units, padded, gates,
               variant.x, variant.y};
    set_products(g.inputs, src + b * input_size, zeros.x, input_weights, zeros.z, input_size, columns);
    set_products(g.recurrent, prev_output + b * output_size, zeros.y, recurrent_weights, zeros.z, output_size, columns);
    GROUP_BARRIER(CLK_GLOBAL_MEM_FENCE);

    for (int gate = 4 - gates; gate < OUTPUT_GATE; ++gate)
        finish_gate(&g, gate, prev_cell + b * units, shared);
    FOR_UNITS(u, units) {
        const int at = (FORGET + gates - 4) * padded + u;
        const int forget = looked_up(logistic, g.inputs[at]);
        const int opened = gates == 4 ? looked_up(logistic, g.inputs[at - padded]) : ONE - forget;
        const int fresh = looked_up(tanh_gate, g.inputs[at + padded]);
        const int kept = rounding_divide_by_pot(forget * prev_cell[b * units + u], 15);
        const int state = saturated(kept + rounding_divide_by_pot(opened * fresh, 30 + variant.w));
        cell[b * units + u] = (short)(clips.x ? clamp(state, -clips.x, clips.x) : state);
    }
    finish_gate(&g, OUTPUT_GATE, cell + b * units, shared);
    FOR_UNITS(u, units) {
        const int output = looked_up(logistic, g.inputs[(gates - 1) * padded + u]);
        const int activated = looked_up(tanh_cell, cell[b * units + u]);
        const int code = clamp(scaled(output * activated, factors.xy) + zeros.w, -128, 127);
        if (variant.z) {
            hidden[b * units + u] = code - zeros.w;
        } else {
            STORE(state_out, b * units + u, code);
            STORE(dst, b * units + u, code);
        }
    }
    if (!variant.z)
        return;
    GROUP_BARRIER(CLK_GLOBAL_MEM_FENCE);
    FOR_UNITS(i, output_size) {
        int sum = variant.z == 2 ? projection_bias[i] : 0;
        for (int k = 0; k < units; ++k)
            sum += hidden[b * units + k] * LOAD(projection, k * padded_outputs + i);
        int code = clamp(scaled(sum, factors.zw) + zeros.y, -128, 127);
        code = clips.y ? clamp(code, -clips.y, clips.y) : code;
        STORE(state_out, b * output_size + i, code);
        STORE(dst, b * output_size + i, code);
    }
}

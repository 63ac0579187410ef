// SPDX-License-Identifier: Apache-2.0
// lstm.cl: the recurrent part of LSTM cells, for all time steps in one launch or for one step in three.
// Maths    f, i, o = logistic(gate), i = 1 - f without input gate; gate = [norm](x W' + h R' + peephole * cell) [* norm weights] + bias
//          cell = clip(f * cell + i * act(gate of the cell)); h = o * act(cell), with projection clip(h P' + bias)
//          the output gate's peephole sees the new cell; norm: mean 0, variance 1 over the units
// Tensors  sums float [rows, gates, padded_units]: inputs times weights, overwritten; row = step * row_time + batch * row_batch
//          recurrent of T [output_size, gates, padded_units]; vectors of T [k, padded_units]: biases of the gates, peepholes,
//          norm weights, as far as there are any; projection of T [units, padded_outputs], projection_bias of T [padded_outputs]
//          output_state_in, output_state_out [batches, output_size], cell_state_in, cell_state_out [batches, units] of T
//          outputs of T, element out_offset + step * out_time + batch * out_batch + i
//          hidden, cell float [batches, padded_outputs], [batches, padded_units]: states, kept from launch to launch
// Units    gates: (input,) forget, cell, output; shape (units, padded_units, output_size, padded_outputs, gates, max_time,
//          first step, step after the last), places (row_time, row_batch, out_time, out_batch, out_offset, backward,
//          writes_states, 0), variant (peephole, norm, projection: 0 | 1 | 2 with bias, activation as in the operation)
//          clips (cell, projection), 0 for none; padded sizes are multiples of 16, padding is 0
// Defines  T: float | half (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
//          IN_STEPS: 1 gives the kernels of single steps, lstm_sequence otherwise
// Launch   lstm_sequence, lstm_states, lstm_cell: global (GROUP, batches), local (GROUP, 1): one group per batch
//          lstm_products, lstm_projection: global (any, batches), local (GROUP, 1)
//          in steps: lstm_states once, then for each step lstm_products, lstm_cell, and lstm_projection where there is one
// Exact    no; sums in float
#ifndef T
#error "lstm.cl: define T"
#endif

#ifndef IN_STEPS
#define IN_STEPS 0
#endif

#include "common/types.h"
#include "common/recurrent.h"

#define SUM_T float
#include "common/group_sum.h"

#define EPSILON 1e-8f

#define ACTIVATION_RELU 1
#define ACTIVATION_RELU6 3
#define ACTIVATION_TANH 4
#define ACTIVATION_SIGMOID 6

typedef struct {
    global float *sums;
    global const T *recurrent, *vectors, *projection, *projection_bias, *output_state_in, *cell_state_in;
    global T *outputs, *output_state_out, *cell_state_out;
    global float *hidden, *cell;
    int units, padded_units, output_size, padded_outputs, gates, max_time, step, stop, batch;
    int row_time, row_batch, out_time, out_batch, out_offset, backward, writes_states;
    int peephole, norm, projected, activation;
    float cell_clip, proj_clip;
} Cell;

#define CELL_PARAMETERS                                                                                                        \
    global float *sums, global const T *recurrent, global const T *vectors, global const T *projection,                        \
        global const T *projection_bias, global const T *output_state_in, global const T *cell_state_in, global T *outputs,    \
        global T *output_state_out, global T *cell_state_out, global float *hidden, global float *cell, int8 shape, int8 places, \
        int4 variant, float2 clips

// The cell of one batch.
#define CELL                                                                                                                   \
    {                                                                                                                          \
        sums, recurrent, vectors, projection, projection_bias, output_state_in, cell_state_in, outputs, output_state_out,      \
            cell_state_out, hidden + (int)get_global_id(1) * shape.s3, cell + (int)get_global_id(1) * shape.s1, shape.s0,      \
            shape.s1, shape.s2, shape.s3, shape.s4, shape.s5, shape.s6, shape.s7, (int)get_global_id(1), places.s0, places.s1, \
            places.s2, places.s3, places.s4, places.s5, places.s6, variant.s0, variant.s1, variant.s2, variant.s3, clips.s0,   \
            clips.s1                                                                                                           \
    }

static inline LANES_T logistic(LANES_T x)
{
    return 1.0f / (1.0f + exp(-x));
}

static inline LANES_T activated(LANES_T x, int activation)
{
    if (activation == ACTIVATION_TANH)
        return tanh(x);
    if (activation == ACTIVATION_SIGMOID)
        return logistic(x);
    if (activation == ACTIVATION_RELU || activation == ACTIVATION_RELU6)
        x = x < 0.0f ? (LANES_T)0.0f : x;
    return activation == ACTIVATION_RELU6 ? (x > 6.0f ? (LANES_T)6.0f : x) : x;
}

// NaN stays NaN.
static inline LANES_T clipped(LANES_T x, float limit)
{
    if (!(limit > 0.0f))
        return x;
    x = x < -limit ? (LANES_T)-limit : x;
    return x > limit ? (LANES_T)limit : x;
}

static inline int time_of(const Cell *c, int step)
{
    return c->backward ? c->max_time - 1 - step : step;
}

// The sums of one gate at a step; gates count from the forget gate, so that -1 is the input gate.
static inline global float *gate_sums(const Cell *c, int step, int gate)
{
    const int row = time_of(c, step) * c->row_time + c->batch * c->row_batch;
    return c->sums + (row * c->gates + gate + c->gates - 3) * c->padded_units;
}

#define FORGET 0
#define CELL_GATE 1
#define OUTPUT_GATE 2
#define INPUT_GATE -1

static inline global const T *bias_of(const Cell *c, int gate)
{
    return c->vectors + (gate + c->gates - 3) * c->padded_units;
}

// The cell's own gate has no peephole.
static inline global const T *peephole_of(const Cell *c, int gate)
{
    return c->vectors + (c->gates + gate + c->gates - 3 - (gate == OUTPUT_GATE)) * c->padded_units;
}

static inline global const T *norm_of(const Cell *c, int gate)
{
    return c->vectors + (c->gates + (c->peephole ? c->gates - 1 : 0) + gate + c->gates - 3) * c->padded_units;
}

static inline void load_states(const Cell *c, int first, int stride)
{
    EVERY_UNIT(i, c->padded_outputs, first, stride)
        SET_UNITS(c->hidden, i, load_units(c->output_state_in + c->batch * c->output_size, i, c->output_size));
    EVERY_UNIT(i, c->padded_units, first, stride)
        SET_UNITS(c->cell, i, load_units(c->cell_state_in + c->batch * c->units, i, c->units));
}

static inline void add_recurrent(const Cell *c, int step, int first, int stride)
{
    add_products(gate_sums(c, step, 3 - c->gates), c->hidden, c->recurrent, c->output_size, c->gates * c->padded_units, first, stride);
}

static inline void store_outputs(const Cell *c, int step, int i, LANES_T values)
{
    global T *outputs = c->outputs + c->out_offset + time_of(c, step) * c->out_time + c->batch * c->out_batch;
    SET_UNITS(c->hidden, i, values);
    store_units(outputs, i, c->output_size, values);
    if (c->writes_states && step == c->stop - 1)
        store_units(c->output_state_out + c->batch * c->output_size, i, c->output_size, values);
}

static inline void add_peephole(const Cell *c, int step, int gate, int i)
{
    global float *sums = gate_sums(c, step, gate);
    SET_UNITS(sums, i, UNITS(sums, i) + WEIGHTS(peephole_of(c, gate), i) * UNITS(c->cell, i));
}

static inline float sum_of_lanes(LANES_T values)
{
#if LANES == 16
    const float8 a = values.lo + values.hi;
    const float4 b = a.lo + a.hi;
    return b.x + b.y + b.z + b.w;
#else
    return values;
#endif
}

// values - mean, 0 in the padding
static inline LANES_T centred(LANES_T values, float mean, int i, int units)
{
#if LANES == 16
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + i;
    return lane < units ? values - mean : (float16)0.0f;
#else
    return i < units ? values - mean : 0.0f;
#endif
}

// A gate's sums with mean 0 and variance 1, times the norm weights; for whole groups.
static inline void normalize_gate(const Cell *c, int step, int gate, local float *shared)
{
    global float *sums = gate_sums(c, step, gate);
    const int first = (int)get_local_id(0);
    LANES_T total = 0.0f, squares = 0.0f;
    EVERY_UNIT(i, c->padded_units, first, GROUP)
        total += UNITS(sums, i);
    const float mean = sum_of_group(sum_of_lanes(total), shared) / (float)c->units;
    EVERY_UNIT(i, c->padded_units, first, GROUP) {
        const LANES_T value = centred(UNITS(sums, i), mean, i, c->units);
        squares += value * value;
    }
    const float variance = sum_of_group(sum_of_lanes(squares), shared) / (float)c->units;
    const float deviation = sqrt(variance + EPSILON);
    EVERY_UNIT(i, c->padded_units, first, GROUP)
        SET_UNITS(sums, i, centred(UNITS(sums, i), mean, i, c->units) / deviation * WEIGHTS(norm_of(c, gate), i));
}

static inline LANES_T gate_value(const Cell *c, int step, int gate, int i)
{
    return UNITS(gate_sums(c, step, gate), i) + WEIGHTS(bias_of(c, gate), i);
}

// The new cell state of units i.., and what it adds to the output gate.
static inline void advance_cell(const Cell *c, int step, int i)
{
    const LANES_T forget = logistic(gate_value(c, step, FORGET, i));
    const LANES_T opened = c->gates == 4 ? logistic(gate_value(c, step, INPUT_GATE, i)) : 1.0f - forget;
    const LANES_T fresh = activated(gate_value(c, step, CELL_GATE, i), c->activation);
    const LANES_T state = clipped(forget * UNITS(c->cell, i) + opened * fresh, c->cell_clip);
    SET_UNITS(c->cell, i, state);
    if (c->writes_states && step == c->stop - 1)
        store_units(c->cell_state_out + c->batch * c->units, i, c->units, state);
    if (c->peephole)
        add_peephole(c, step, OUTPUT_GATE, i);
}

// From complete sums to the cell state, and to the output or what is projected (in the output gate's sums); for whole groups.
static inline void advance(const Cell *c, int step, local float *shared)
{
    const int first = (int)get_local_id(0), padded = c->padded_units;
    if (c->peephole)
        EVERY_UNIT(i, padded, first, GROUP) {
            add_peephole(c, step, FORGET, i);
            if (c->gates == 4)
                add_peephole(c, step, INPUT_GATE, i);
        }
    if (c->norm)
        for (int gate = 3 - c->gates; gate < OUTPUT_GATE; ++gate)
            normalize_gate(c, step, gate, shared);
    EVERY_UNIT(i, padded, first, GROUP)
        advance_cell(c, step, i);
    if (c->norm)
        normalize_gate(c, step, OUTPUT_GATE, shared);
    EVERY_UNIT(i, padded, first, GROUP) {
        const LANES_T value = logistic(gate_value(c, step, OUTPUT_GATE, i)) * activated(UNITS(c->cell, i), c->activation);
        if (c->projected)
            SET_UNITS(gate_sums(c, step, OUTPUT_GATE), i, value);
        else
            store_outputs(c, step, i, value);
    }
}

static inline void project(const Cell *c, int step, int first, int stride)
{
    const int padded = c->padded_outputs;
    EVERY_UNIT(i, padded, first, stride)
        SET_UNITS(c->hidden, i, c->projected == 2 ? WEIGHTS(c->projection_bias, i) : (LANES_T)0.0f);
    add_products(c->hidden, gate_sums(c, step, OUTPUT_GATE), c->projection, c->units, padded, first, stride);
    EVERY_UNIT(i, padded, first, stride)
        store_outputs(c, step, i, clipped(UNITS(c->hidden, i), c->proj_clip));
}

#if !IN_STEPS
VECTOR_KERNEL void lstm_sequence(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    local float shared[GROUP];
    const Cell c = CELL;
    const int first = (int)get_local_id(0);
    load_states(&c, first, GROUP);
    for (int step = c.step; step < c.stop; ++step) {
        GROUP_BARRIER(CLK_GLOBAL_MEM_FENCE);
        add_recurrent(&c, step, first, GROUP);
        GROUP_BARRIER(CLK_GLOBAL_MEM_FENCE);
        advance(&c, step, shared);
        if (c.projected) {
            GROUP_BARRIER(CLK_GLOBAL_MEM_FENCE);
            project(&c, step, first, GROUP);
        }
    }
}

#else
VECTOR_KERNEL void lstm_states(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    const Cell c = CELL;
    load_states(&c, (int)get_local_id(0), GROUP);
}

VECTOR_KERNEL void lstm_products(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    const Cell c = CELL;
    add_recurrent(&c, c.step, (int)get_global_id(0), (int)get_global_size(0));
}

VECTOR_KERNEL void lstm_cell(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    local float shared[GROUP];
    const Cell c = CELL;
    advance(&c, c.step, shared);
}

VECTOR_KERNEL void lstm_projection(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    const Cell c = CELL;
    project(&c, c.step, (int)get_global_id(0), (int)get_global_size(0));
}
#endif

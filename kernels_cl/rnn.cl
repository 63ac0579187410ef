// SPDX-License-Identifier: Apache-2.0
// rnn.cl: the recurrent part of RNN cells, for all time steps in one launch or for one.
// Maths    h = clamp(x W' + h R' + bias, low, high)
// Tensors  sums float [rows, padded_units]: inputs times weights, overwritten; row = step * row_time + batch * row_batch
//          recurrent of T [units, padded_units]; bias of T [padded_units]; state_in, state_out of T [batches, units]
//          outputs of T, element out_offset + step * out_time + batch * out_batch + i
//          hidden float [2, batches, padded_units]: the states after even and after odd steps, kept from launch to launch
// Units    shape (units, padded_units, batches, max_time, first step, step after the last, backward, writes_states),
//          places (row_time, row_batch, out_time, out_batch, out_offset, 0, 0, 0)
//          padded_units is a multiple of 16, padding is 0
// Defines  T: float | half (required)
//          GROUP: work-items of a group of VECTOR_KERNEL
//          IN_STEPS: 1 gives the kernels of single steps, rnn_sequence otherwise
// Launch   rnn_sequence, rnn_state: global (GROUP, batches), local (GROUP, 1): one group per batch
//          in steps: rnn_state once, then rnn_step for each step: global (any, batches), local (GROUP, 1)
// Exact    no; sums in float
#ifndef T
#error "rnn.cl: define T"
#endif

#ifndef IN_STEPS
#define IN_STEPS 0
#endif

#include "common/types.h"
#include "common/recurrent.h"
#include "common/activation.h"

typedef struct {
    global float *sums;
    global const T *recurrent, *bias, *state_in;
    global T *outputs, *state_out;
    global float *hidden;
    int8 shape, places;
    float low, high;
    int batch;
} Cell;

#define CELL_PARAMETERS                                                                                            \
    global float *sums, global const T *recurrent, global const T *bias, global const T *state_in, global T *outputs, \
        global T *state_out, global float *hidden, int8 shape, int8 places, float low, float high
#define CELL                                                                                                                  \
    {                                                                                                                         \
        sums, recurrent, bias, state_in, outputs, state_out, hidden, shape, places, low, high, (int)get_global_id(1)          \
    }

static inline LANES_T activated(LANES_T x, float low, float high)
{
#if LANES == 16
    return activate16(x, low, high);
#else
    return activate(x, low, high);
#endif
}

// The state before a step.
static inline global float *state_before(const Cell *c, int step)
{
    return c->hidden + ((step & 1) * c->shape.s2 + c->batch) * c->shape.s1;
}

static inline void load_state(const Cell *c, int first, int stride)
{
    const int units = c->shape.s0;
    EVERY_UNIT(i, c->shape.s1, first, stride)
        SET_UNITS(state_before(c, 0), i, load_units(c->state_in + c->batch * units, i, units));
}

static inline void advance(const Cell *c, int step, int first, int stride)
{
    const int units = c->shape.s0, padded = c->shape.s1;
    const int time = c->shape.s6 ? c->shape.s3 - 1 - step : step;
    global float *sums = c->sums + (time * c->places.s0 + c->batch * c->places.s1) * padded;
    global T *outputs = c->outputs + c->places.s4 + time * c->places.s2 + c->batch * c->places.s3;
    add_products(sums, state_before(c, step), c->recurrent, units, padded, first, stride);
    EVERY_UNIT(i, padded, first, stride) {
        const LANES_T state = activated(UNITS(sums, i) + WEIGHTS(c->bias, i), c->low, c->high);
        SET_UNITS(state_before(c, step + 1), i, state);
        store_units(outputs, i, units, state);
        if (c->shape.s7 && step == c->shape.s5 - 1)
            store_units(c->state_out + c->batch * units, i, units, state);
    }
}

#if !IN_STEPS
VECTOR_KERNEL void rnn_sequence(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    const Cell c = CELL;
    const int first = (int)get_local_id(0);
    load_state(&c, first, GROUP);
    for (int step = shape.s4; step < shape.s5; ++step) {
        GROUP_BARRIER(CLK_GLOBAL_MEM_FENCE);
        advance(&c, step, first, GROUP);
    }
}

#else
VECTOR_KERNEL void rnn_state(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    const Cell c = CELL;
    load_state(&c, (int)get_local_id(0), GROUP);
}

VECTOR_KERNEL void rnn_step(CELL_PARAMETERS)
{
    FLUSH_DENORMALS;
    const Cell c = CELL;
    advance(&c, shape.s4, (int)get_global_id(0), (int)get_global_size(0));
}
#endif

// SPDX-License-Identifier: Apache-2.0
// matmul.h: a convolution as a product of matrices that nobody writes down: a row is a pixel of the output, a column an output
// channel, a term of their sum an input channel under a tap of the filter.
// Defines  T: float | half | uchar | char | int; FILTER_T: T, or char for per-channel weights; QUANTIZED: 0 | 1, 1 with uchar and char
//          (all required)
//          FLAGS: the flags of every launch, where they are known
// Gives    PARAMETERS: the arguments of every kernel that includes this
//              src, weights, bias, dst of each group: group_strides (src, weights, dst, channel) apart; a group has its own
//              product, channel counts into bias, multipliers and shifts
//              bias [channels] of T, or int (quantised); multipliers, shifts [channels] (quantised only)
//              residual: as dst; read only with ADDS_RESIDUAL, else any buffer of T (not quantised only)
//              src_strides, dst_strides (batch, y, x, channel); input (height, width, group_depth, groups)
//              output (height, width, columns, batches); window (filter height, filter width, padding top, padding left)
//              steps (stride y, x, dilation y, x); filter_layout (stride of a column, stride of a term, terms, flags)
//              flags: sum of SOURCE_VECTORS, FILTER_VECTORS, OUTPUT_VECTORS: what may be read and written by aligned vectors;
//              SOURCE_HALVES, FILTER_HALVES: what by aligned halves of them
//              SOURCE_IN_ROWS, OUTPUT_IN_ROWS: row r is pixel r of src, all of its terms there; of dst: nothing lies between pixels
//              FILTER_CENTRED: the zero point of weights is 0 (quantised); those of common/channel.h
//              zeros (zero points of src, weights, dst, 0) (quantised only); low, high: bounds of the activation
//          ARGUMENTS: their names
//          Pixel, find_pixel, position: where a row's terms are in src, or nowhere, beyond the image or the rows
//          Term, term_of, to_next: tap and channel of a term
//          common/channel.h: what the sum of a column's bias and products becomes
//          RESIDUAL_AT(to): what is added, where it goes in dst; wants `flags`
//          output_offset: where a row lies in dst
// Units    strides and sizes in elements
#ifndef T
#error "matmul.h: define T"
#endif
#ifndef FILTER_T
#error "matmul.h: define FILTER_T"
#endif
#ifndef QUANTIZED
#error "matmul.h: define QUANTIZED"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"

#define SOURCE_VECTORS 1
#define FILTER_VECTORS 2
#define OUTPUT_VECTORS 4
#define SOURCE_IN_ROWS 8
#define OUTPUT_IN_ROWS 16
#define SOURCE_HALVES 32
#define FILTER_HALVES 64
#define FILTER_CENTRED 512

#include "common/centred.h"
#include "common/channel.h"

#if QUANTIZED
#define SCALING global const int *multipliers, global const int *shifts
#define SCALING_ARGUMENTS multipliers, shifts
#define ZEROS , int4 zeros
#define ZEROS_ARGUMENT , zeros
#else
#define SCALING global const T *residual
#define SCALING_ARGUMENTS residual
#define ZEROS
#define ZEROS_ARGUMENT
#endif

#define PARAMETERS                                                                                                          \
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, SCALING, global T *dst, int4 src_strides, \
        int4 dst_strides, int4 group_strides, int4 input, int4 output, int4 window, int4 steps, int4 filter_layout ZEROS,   \
        COMPUTE_T low, COMPUTE_T high
#define ARGUMENTS                                                                                                           \
    src, weights, bias, SCALING_ARGUMENTS, dst, src_strides, dst_strides, group_strides, input, output, window, steps,      \
        filter_layout ZEROS_ARGUMENT, low, high

#define OUTSIDE (-(1 << 30)) // of every image, whatever the filter adds

typedef struct {
    int4 strides, input, output, window, steps;
    int terms, flags;
} Geometry;

// Where a row's image begins in src, and its window in the image.
typedef struct {
    int first, top, left;
} Pixel;

static inline int row_count(int4 output)
{
    return output.w * output.x * output.y;
}

// By members, as channel.h says.
static inline void find_pixel(Pixel *pixel, int row, const Geometry *g)
{
    const int is_there = row < row_count(g->output);
    if (g->flags & SOURCE_IN_ROWS) { // divisions take as long as dozens of products
        pixel->first = row * g->strides.z;
        pixel->top = is_there ? 0 : OUTSIDE;
        pixel->left = 0;
    } else {
        const int height = g->output.x, width = g->output.y;
        const int x = row % width, y = row / width % height, b = row / width / height;
        pixel->first = b * g->strides.x;
        pixel->top = is_there ? y * g->steps.x - g->window.z : OUTSIDE;
        pixel->left = x * g->steps.y - g->window.w;
    }
}

// Element of channel 0 under the tap at (y, x) of the window, or -1 outside of the image.
static inline int position(Pixel pixel, int y, int x, const Geometry *g)
{
    const int iy = pixel.top + y, ix = pixel.left + x;
    return inside(iy, g->input.x) && inside(ix, g->input.y) ? pixel.first + iy * g->strides.y + ix * g->strides.z : -1;
}

// A term: its tap in pixels of the image, OUTSIDE beyond the last, and its channel.
typedef struct {
    int y, x, channel;
} Term;

static inline Term term_of(int k, const Geometry *g)
{
    Term term = {0, 0, k};
    if (k >= g->terms) {
        term.y = OUTSIDE;
        term.channel = 0;
    } else if (g->terms != g->input.z) {
        const int tap = k / g->input.z, y = tap / g->window.y;
        term.channel = k - tap * g->input.z;
        term.y = y * g->steps.z;
        term.x = (tap - y * g->window.y) * g->steps.w;
    }
    return term;
}

static inline void to_next(Term *term, const Geometry *g)
{
    if (++term->channel < g->input.z)
        return;
    term->channel = 0;
    term->x += g->steps.w;
    if (term->x < g->window.y * g->steps.w)
        return;
    term->x = 0;
    term->y += g->steps.z;
    if (term->y >= g->window.x * g->steps.z)
        term->y = OUTSIDE;
}

static inline int output_offset(int row, int4 output, int4 strides, int flags)
{
    if (flags & OUTPUT_IN_ROWS)
        return row * strides.z;
    const int height = output.x, width = output.y;
    return row / width / height * strides.x + row / width % height * strides.y + row % width * strides.z;
}

#if QUANTIZED
#define RESIDUAL_AT(to) 0
#else
#define RESIDUAL_AT(to) (flags & ADDS_RESIDUAL ? LOAD(residual, to) : 0)
#endif

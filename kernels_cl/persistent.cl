// SPDX-License-Identifier: Apache-2.0
// persistent.cl: a persistent kernel: small operations of a network one after the other, by groups that stay on a GPU until all is done.
// Maths    each step as its own kernel says: matmul_tiled.cl or matmul_units.cl, depthwise_conv_2d.cl (tiles of one line, or pixels),
//          elementwise.cl (dense inputs)
// Tensors  steps [count][STEP_VECTORS]: of each its kind, how many tiles, work-items or elements it has, 0, 0, then the arguments of its kernel
//          in order, laid out as a structure of C; memory as (number << 40) + offset in bytes: 0 constants, 1 own, 2 .. 7 outer0 .. outer5
//          own: what only these steps use; outer0 ..: buffers of others, unused ones any
//          progress [2]: arrivals of groups at the barrier between steps, and at the end; zero, and left so
// Units    first, last: the steps to do are first .. last - 1
// Defines  all of matmul_tiled.cl, or with MATRIX_UNITS of matmul_units.cl, DIRECT 0 and no FLAGS
//          FENCE: 0 | 1 (required): 1: what a work-item has written is seen by all by PTX, 0: by a memory fence of OpenCL
// Launch   global (ITEMS * groups), local (ITEMS); groups that all run at the same time
// Exact    as those kernels
#ifndef FENCE
#error "persistent.cl: define FENCE"
#endif

#include "common/matmul.h" // before the alternatives, since a file is included once

#ifdef MATRIX_UNITS
#include "common/units_product.h"
#else
#include "common/tiled_product.h"
#endif
#if !FENCE
#define UNROLLED _Pragma("unroll 1") // PoCL 3.0 copies what stands between barriers, and would compile for minutes
#endif
#include "common/depthwise_quads.h"
#include "common/combined.h"

CONVOLVE_QUADS(4, 1, 1, 0)
CONVOLVE_QUADS(1, 1, input.w, 0)

#define STEP_VECTORS 16
#define STEP_PRODUCT 0
#define STEP_DEPTHWISE_STRIPS 1
#define STEP_DEPTHWISE_PIXELS 2
#define STEP_COMBINATION 3

typedef long Place;

typedef struct {
    Place src, weights, bias;
#if QUANTIZED
    Place multipliers, shifts;
#else
    Place residual;
#endif
    Place dst;
    int4 src_strides, dst_strides, group_strides, input, output, window, steps, filter_layout;
#if QUANTIZED
    int4 zeros;
#endif
    COMPUTE_T low, high;
} Product;

typedef struct {
    Place src, weights, bias;
#if QUANTIZED
    Place multipliers, shifts;
#endif
    Place dst;
    int4 input, output, window, steps;
#if QUANTIZED
    int4 zeros;
#endif
    COMPUTE_T low, high;
} Depthwise;

typedef struct {
    Place src0, src1, dst;
    int operation;
    COMPUTE_T low, high;
    int left_shift;
    int4 zeros;
    int2 factor0, factor1, factor_out;
    int by_floats;
    float4 reals;
} Combine;

typedef struct {
    global uchar *constants, *own, *outer0, *outer1, *outer2, *outer3, *outer4, *outer5;
} Memories;

static inline global uchar *memory_at(Place place, Memories m)
{
    const int number = (int)(place >> 40);
    global uchar *memory = number == 0   ? m.constants
                           : number == 1 ? m.own
                           : number == 2 ? m.outer0
                           : number == 3 ? m.outer1
                           : number == 4 ? m.outer2
                           : number == 5 ? m.outer3
                           : number == 6 ? m.outer4
                                         : m.outer5;
    return memory + (place & 0xffffffffffL);
}
#define AT(type, place) ((global type *)memory_at(place, memories))

#if FENCE
#define FENCE_OF_DEVICE() __asm__ volatile("membar.gl;" ::: "memory")
#define GIVE_UP() __asm__ volatile("trap;") // ends the launch by an error
#else
#define FENCE_OF_DEVICE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define GIVE_UP()
#endif
#define MOST_LOOKS (1u << 24) // ten seconds and more, where what others do takes microseconds

// Waits until so many groups have come here, in all of this launch.
static INLINE void wait_for_arrivals(global volatile uint *progress, uint arrivals)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        FENCE_OF_DEVICE();
        atomic_inc(progress);
        for (uint looks = 0; *progress < arrivals; ++looks)
            if (looks == MOST_LOOKS) // a group has no place on the device, and will not have one
                GIVE_UP();
        FENCE_OF_DEVICE();
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

#if QUANTIZED
#define PRODUCT_OF(s)                                                                                                      \
    AT(T, s->src), AT(FILTER_T, s->weights), AT(BIAS_T, s->bias), AT(int, s->multipliers), AT(int, s->shifts), AT(T, s->dst), \
        s->src_strides, s->dst_strides, s->group_strides, s->input, s->output, s->window, s->steps, s->filter_layout, s->zeros, \
        s->low, s->high
#define DEPTHWISE_OF(s)                                                                                                    \
    AT(T, s->src), AT(FILTER_T, s->weights), AT(BIAS_T, s->bias), AT(int, s->multipliers), AT(int, s->shifts), AT(T, s->dst), s->input, \
        s->output, s->window, s->steps, s->zeros, s->low, s->high
#else
#define PRODUCT_OF(s)                                                                                                      \
    AT(T, s->src), AT(FILTER_T, s->weights), AT(BIAS_T, s->bias), AT(T, s->residual), AT(T, s->dst), s->src_strides, \
        s->dst_strides, s->group_strides, s->input, s->output, s->window, s->steps, s->filter_layout, s->low, s->high
#define DEPTHWISE_OF(s)                                                                                                    \
    AT(T, s->src), AT(FILTER_T, s->weights), AT(BIAS_T, s->bias), AT(T, s->dst), s->input, s->output, s->window, s->steps, s->low, s->high
#endif

static inline void combine_sixteen(int i, local const Combine *s, Memories memories)
{
    const COMPUTE_T16 y = combined16(LOAD16(AT(T, s->src0), i), LOAD16(AT(T, s->src1), i), s->operation, s->low, s->high, s->left_shift,
        s->zeros, s->factor0, s->factor1, s->factor_out, s->by_floats, s->reals);
    STORE16(AT(T, s->dst), i, y);
}

// What work-item `first` of `all` does of a step whose work-items need not each other.
static INLINE void do_items(int kind, int count, int first, int all, local const int4 *arguments, Memories memories)
{
    if (kind == STEP_DEPTHWISE_STRIPS) {
        for (int i = first; i < count; i += all)
            convolve_quads_4_1((uint)i, DEPTHWISE_OF(((local const Depthwise *)arguments)));
    } else if (kind == STEP_DEPTHWISE_PIXELS) {
        for (int i = first; i < count; i += all)
            convolve_quads_1_1((uint)i, DEPTHWISE_OF(((local const Depthwise *)arguments)));
    } else {
        for (int i = first * 16; i < count; i += all * 16)
            combine_sixteen(min(i, count - 16), (local const Combine *)arguments, memories);
    }
}

#ifdef MATRIX_UNITS
#define TILE_MEMORY stages, exchange
#else
#define TILE_MEMORY tiles
#endif

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void persistent(int first, int last, global volatile uint *progress,
    global const int4 *steps, global uchar *constants, global uchar *own, global uchar *outer0, global uchar *outer1, global uchar *outer2,
    global uchar *outer3, global uchar *outer4, global uchar *outer5)
{
    local int4 words[STEP_VECTORS];
#ifdef MATRIX_UNITS
    local uint4 stages[STAGES * STAGE];
    local uint exchange[EXCHANGE_WORDS(ITEMS)];
#else
    local TERM_T tiles[TILE_TERMS] __attribute__((aligned(16)));
#endif
    const Memories memories = {constants, own, outer0, outer1, outer2, outer3, outer4, outer5};
    const int item = (int)get_local_id(0), group = (int)get_group_id(0), groups = (int)get_num_groups(0);
    int4 coming = steps[first * STEP_VECTORS + item % STEP_VECTORS];
    for (int at = first; at < last; ++at) {
        if (item < STEP_VECTORS)
            words[item] = coming;
        barrier(CLK_LOCAL_MEM_FENCE);
        const int kind = words[0].x, count = words[0].y;
        if (at + 1 < last)
            coming = steps[(at + 1) * STEP_VECTORS + item % STEP_VECTORS];
        if (kind == STEP_PRODUCT) {
            local const Product *s = (local const Product *)(words + 1);
            product_tiles(group, groups, TILE_MEMORY, PRODUCT_OF(s));
        } else {
            do_items(kind, count, group * ITEMS + item, groups * ITEMS, words + 1, memories);
        }
        if (at + 1 < last)
            wait_for_arrivals(progress, (uint)(groups * (at + 1 - first)));
    }
    // The last to leave makes ready for the next launch.
    if (item == 0 && atomic_inc(progress + 1) == (uint)groups - 1) {
        progress[0] = 0;
        progress[1] = 0;
    }
}

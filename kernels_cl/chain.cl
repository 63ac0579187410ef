// SPDX-License-Identifier: Apache-2.0
// chain.cl: CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, ADD after them and AVERAGE_POOL_2D, any number one after the other,
// for CPU-type devices.
// Maths    of a step: convolve.h (convolve_vnni.h with VNNI), depthwise.h, with constant, packed weights; average.h
// Tensors  b0..b7: dense tensors of T, at the places that the steps name (common/chain_step.h)
//          steps, tasks: as chain.py makes them; constants: weights and vectors of all steps, each 64-byte aligned
//          progress: int [16 + tasks], zero before and after: how many tasks are taken, how many groups have ended, 14 unused ones,
//          and 1 for every task that is done
// Units    first_task, last_task: the part of the tasks to do; those before are done
// Defines  T: float | half | uchar | char (required)
//          QUANTIZED: 0 | 1 (required); 1 with uchar and char
//          VNNI: 0 | 1 (required); 1: products of bytes by the instruction vpdpbusd: quantised, PoCL on an x86 CPU with AVX512_VNNI
//          (else the build fails or the process dies of an illegal instruction)
//          DEPTH_CHUNK: longest run of products of a pixel staged at once, a multiple of 16, with VNNI of 64 (required)
// Launch   global (groups), local (1); any number of groups, at most one per core makes sense
// Needs    work-items that run are never suspended for good: threads of a CPU; tasks wait for earlier ones only, and a group that
//          waits has taken none, so that one group alone comes to an end too
//          tensors of at most 2^31 - 1 elements
// Exact    quantised: bit for bit as TFLite's reference; float: fused multiply-adds in a fixed order for each step and size
#ifndef T
#error "chain.cl: define T"
#endif
#ifndef QUANTIZED
#error "chain.cl: define QUANTIZED"
#endif
#ifndef VNNI
#error "chain.cl: define VNNI"
#endif
#ifndef DEPTH_CHUNK
#error "chain.cl: define DEPTH_CHUNK"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"
#include "common/chain_step.h"
#include "common/tile.h"
#include "common/window.h"
#if VNNI
#include "common/convolve_vnni.h"
#else
#include "common/convolve.h"
#endif
#include "common/depthwise.h"
#include "common/mean.h"
#include "common/average.h"

#define CONVOLVE 0
#define DEPTHWISE 1
#define FLIP_SIGNS 2
#define AVERAGE 3
#define WAITS 3
#define DONE 16

typedef struct {
    Part part;
    int first[WAITS], last[WAITS]; // tasks that must be done before: first..last - 1
    int patience;                  // turns of the waiting loop after which a group leaves the rest to the others
} Task;

#if QUANTIZED
// Unsigned bytes to signed ones of the same order, or back.
static void flip_signs(const Step *s, Part part, global const T *src, global T *dst)
{
    const int last = min(part.x1 * TILE_PIXELS, s->batches * s->out_height * s->out_width) * s->depth_out;
    int i = part.x0 * TILE_PIXELS * s->depth_out;
    for (; i + 16 <= last; i += 16)
        ((global UnalignedT16 *)(dst + i))->value = ((global const UnalignedT16 *)(src + i))->value ^ (T16)(T)0x80;
    for (; i < last; ++i)
        dst[i] = src[i] ^ (T)0x80;
}
#endif

static void run_step(const Step *s, Part part, global uchar *const *buffers, global const uchar *constants)
{
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64);
    global const T *residual = (global const T *)(buffers[s->residual] + (size_t)s->residual_offset * 64);
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64);
    if (s->kind == CONVOLVE)
        convolve(s, part, src, dst, residual, constants);
    else if (s->kind == AVERAGE)
        average(s, part, src, dst);
#if QUANTIZED
    else if (s->kind == FLIP_SIGNS)
        flip_signs(s, part, src, dst);
#endif
    else if (is_depthwise3(s))
        depthwise3(s, part, src, dst, constants);
    else
        depthwise(s, part, src, dst, constants);
}

// Whether what a task needs is done, after some patience.
static inline int is_ready(const Task *task, volatile global const int *done, int first_task)
{
    int patience = task->patience;
    for (int i = 0; i < WAITS; ++i)
        for (int other = task->last[i] - 1; other >= max(first_task, task->first[i]); --other)
            while (done[other] == 0)
                if (--patience <= 0)
                    return 0;
    return 1;
}

// No `restrict` in functions that are inlined: Oclgrind 21.10 does not know what LLVM makes of it.
TILE_KERNEL void chain(int first_task, int last_task, global const Step *restrict steps, global const Task *restrict tasks,
                       global const uchar *restrict constants, volatile global int *progress, global T *b0, global T *b1, global T *b2,
                       global T *b3, global T *b4, global T *b5, global T *b6, global T *b7)
{
    global uchar *const buffers[] = {(global uchar *)b0, (global uchar *)b1, (global uchar *)b2, (global uchar *)b3,
                                     (global uchar *)b4, (global uchar *)b5, (global uchar *)b6, (global uchar *)b7};
    for (int taken = progress[0]; first_task + taken < last_task; taken = progress[0]) {
        const int at = first_task + taken;
        const Task task = tasks[at];
        // Whoever is waited for too long was interrupted; that group goes on with all tasks later.
        if (!is_ready(&task, progress + DONE, first_task))
            break;
        if (atomic_cmpxchg(progress, taken, taken + 1) != taken)
            continue;
        const Step step = steps[task.part.step];
        run_step(&step, task.part, buffers, constants);
        mem_fence(CLK_GLOBAL_MEM_FENCE);
        atomic_inc(progress + DONE + at);
    }
    // The last group leaves all as it was.
    if (atomic_inc(progress + 1) == (int)get_num_groups(0) - 1) {
        for (int at = first_task; at < last_task; ++at)
            progress[DONE + at] = 0;
        progress[0] = 0;
        progress[1] = 0;
    }
}

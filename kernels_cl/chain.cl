// SPDX-License-Identifier: Apache-2.0
// chain.cl: CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, ADD after them, pooling, SOFTMAX, of bytes QUANTIZE and DEQUANTIZE; with GENERAL
// element-wise operations, sums, what moves rows (TRANSPOSE, PAD, GATHER, ...), resizing and BATCH_MATMUL, too: any number one after the other,
// for CPU-type devices.
// Maths    of a step: convolve.h (convolve_bytes.h for bytes with DOT4), depthwise.h, depthwise_bytes.h, expanded.h, winograd.h, with constant,
//          packed weights; average_step.h, softmax_step.h; for bytes quantize_step.h; with GENERAL elementwise_step.h, reduce_step.h, copy_step.h,
//          gather_step.h, greatest_step.h, resize_step.h, product_step.h, and with DOT4 for floats dynamic_step.h
// Tensors  b0..b15: dense tensors of T, or of what a step says, at the places that the steps name (common/chain_step.h)
//          steps, tasks, starts, waits: as gpu_driver/chain makes them; constants: weights and vectors of all steps, each 64-byte aligned
//          tasks lie queue by queue, in a queue step by step: starts [queues, steps + 1]; waits: the tasks that tasks wait for
//          progress: int [1 + queues + tasks][LINE], zero at first: the number of launches that have ended and how many groups have ended
//          and begun in this one; how many tasks of each queue are taken, 0 between launches; the number of the last launch that did each task
//          work: memory that work-groups use for themselves, work_lines * 64 bytes for each of `queues`, if any
// Units    first_step, last_step: the part of the steps to do; those before are done
// Defines  T: float | half | uchar | char (required)
//          QUANTIZED: 0 | 1 (required); 1 with uchar and char
//          DOT4: 0 | 1 | 2 | 3 | 4 (required); not 0: products of bytes by common/dot4.h, of those that tensors have or, 1 to 3, that are
//          made of floats, where that form of it works (else the build fails or the process dies of an illegal instruction)
//          WINOGRAD: 0 | 1 (required); 1: there may be steps by winograd.h, for float and half
//          DEPTHWISE5: 0 | 1 (required): 1: there may be steps by depthwise_bytes.h or depthwise.h with filters of 5 x 5
//          DEPTHWISE_FEW: 0 | 1 (required): 1: there may be steps by depthwise_bytes.h of fewer channels than half a block
//          DEPTHWISE_REST: 0 | 1 (required): 1: there may be steps by depthwise_bytes.h with weights that are no signed bytes
//          GENERAL: 0 | 1 (required); 1: there may be steps by the headers that are named above after "with GENERAL"
//          DEPTH_CHUNK: longest run of products of a pixel staged at once, a multiple of 16, with DOT4 of 64 (required)
//          CLOCK: 0 (default) | 1; 1: tasks leave the processor's cycle counter in progress when they begin and end
//          TILE_PIXELS, TILE_VECTORS, DEPTHWISE_PIXELS: see common/tile.h, common/depthwise.h; TILE_PIXELS 16 with DOT4 4
// Launch   global (groups), local (1); any number of groups, where there is `work` at most `queues`; at most one per core makes sense
// Order    Every queue is a part of the picture in all steps and belongs to a group, so that what a task reads was mostly written by the
//          same core. Tasks of a queue are taken in order, by its group, and by others while their own queues have nothing ready.
//          A task is taken only when all that it waits for is done. There is an order of all tasks in which each comes after those
//          that it waits for and those before it in its queue (gpu_driver/chain sees to it). So the first in that order that nobody has taken
//          is next in its queue and waits for taken tasks only; as soon as no group works, it is ready. Hence a group that looks at
//          all queues after its last task either finds one to do, or nothing is left, or another group works, and that one will look
//          later: whoever loses patience may leave, and one group alone comes to an end too.
// Needs    work-items that run are never suspended for good: threads of a CPU
//          tensors of at most 2^31 - 1 elements
// Exact    quantised: bit for bit as TFLite's reference; float: fused multiply-adds in a fixed order for each step and size; dynamic_step.h
//          rounds inputs to bytes
#ifndef T
#error "chain.cl: define T"
#endif
#ifndef QUANTIZED
#error "chain.cl: define QUANTIZED"
#endif
#ifndef DOT4
#error "chain.cl: define DOT4"
#endif
#ifndef WINOGRAD
#error "chain.cl: define WINOGRAD"
#endif
#define OF_BYTES (DOT4 && QUANTIZED)
#define DYNAMIC (DOT4 && !QUANTIZED)
#ifndef DEPTHWISE5
#error "chain.cl: define DEPTHWISE5"
#endif
#ifndef DEPTHWISE_FEW
#error "chain.cl: define DEPTHWISE_FEW"
#endif
#ifndef DEPTHWISE_REST
#error "chain.cl: define DEPTHWISE_REST"
#endif
#ifndef GENERAL
#error "chain.cl: define GENERAL"
#endif
#ifndef DEPTH_CHUNK
#error "chain.cl: define DEPTH_CHUNK"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"
#include "common/chain_step.h"
#include "common/prefetch.h"
#include "common/tile.h"
#include "common/window.h"
#if DOT4
#include "common/dot4.h"
#endif
#if OF_BYTES
#include "common/bytes.h"
#include "common/finish_bytes.h"
#if DOT4 == 4
#if TILE_PIXELS != 16
#error "chain.cl: with DOT4 4 define TILE_PIXELS as 16"
#endif
#include "common/amx.h"
#endif
#include "common/convolve_bytes.h"
#else
#include "common/convolve.h"
#endif
#include "common/depthwise.h"
#if READS_DIRECTLY
#include "common/expanded.h"
#endif
#if OF_BYTES
#include "common/depthwise_bytes.h"
#endif
#if WINOGRAD
#include "common/winograd.h"
#endif
#include "common/mean.h"
#include "common/pooled.h"
#include "common/average.h"
#include "common/average_step.h"
#include "common/lanes.h"
#if T_IS_FLOAT
#include "common/exponential.h"
#include "common/softmax.h"
#else
#include "common/softmax_bytes.h"
#include "common/quantize.h"
#include "common/quantize_step.h"
#endif
#include "common/softmax_step.h"
#if GENERAL
#define RAW_OF_float uint
#define RAW_OF_half ushort
#define RAW_OF_uchar uchar
#define RAW_OF_char uchar
#include "common/combine.h"
#include "common/prelu.h"
#if QUANTIZED
#include "common/pairs.h"
#include "common/look_up_row.h"
#endif
#include "common/kept.h"
#include "common/kept_lanes.h"
#if T_IS_FLOAT
#include "common/logarithm.h"
#include "common/sine.h"
#endif
#include "common/elementwise_step.h"
#include "common/reduce_step.h"
#include "common/copy_row.h"
#define RAW JOIN(RAW_OF_, T)
#include "common/turn_tile.h"
#include "common/move_neighbours.h"
#include "common/copy_step.h"
#include "common/place.h"
#include "common/gather_step.h"
#include "common/greatest.h"
#include "common/greatest_step.h"
#include "common/resize.h"
#include "common/resize_step.h"
#if T_IS_FLOAT
#include "common/product_step.h"
#endif
#if DYNAMIC
#include "common/dynamic_step.h"
#endif
#endif

#ifndef CLOCK
#define CLOCK 0
#endif
#if CLOCK
#define STAMP(line, word) (*(volatile global ulong *)((line) + (word)) = (ulong)__builtin_readcyclecounter())
#else
#define STAMP(line, word) (void)(line)
#endif
#define BEGAN 2
#define ENDED 4

#define KIND_CONVOLVE 0
#define KIND_DEPTHWISE 1
#define KIND_FLIP_SIGNS 2
#define KIND_AVERAGE 3
#define KIND_DEPTHWISE_BYTES 4
#define KIND_EXPANDED 5
#define KIND_SOFTMAX 6
#define KIND_WINOGRAD 7
#define KIND_QUANTIZE 8
#define KIND_DEQUANTIZE 9
#define KIND_ELEMENTWISE 10
#define KIND_REDUCE 11
#define KIND_COPY 12
#define KIND_PACK 13
#define KIND_MULTIPLY 14
#define KIND_GREATEST 15
#define KIND_FILL 16
#define KIND_BILINEAR 17
#define KIND_NEAREST 18
#define KIND_TURN 19
#define KIND_RANGES 20
#define KIND_TO_BYTES 21
#define KIND_BYTES_OF_ROWS 22
#define KIND_MULTIPLY_BYTES 23
#define KIND_MULTIPLY_FEW 24
#define KIND_GATHER 25
// Words between what different cores write: two lines of most caches, which some fetch together.
#define LINE 32
// Turns of waiting for its own next task after which a group looks at the queues of others, and turns between two such looks.
#define BEFORE_HELPING 256
// Turns, of about a nanosecond, that the first group stays for the others to end, where all have begun and where some have not, and then
// for them to leave.
#define LONGEST_STAY 65536
#define TIME_TO_BEGIN 4096
#define TIME_TO_LEAVE 400

#define NOT_READY -1
#define NONE_LEFT -2

typedef struct {
    Part part;
    int first_wait, last_wait; // in waits: tasks that must be done before
    int patience;              // turns of the waiting loop after which a group leaves the rest to the others
} Task;

typedef struct {
    global const Task *tasks;
    global const int *starts, *waits;
    volatile global int *progress;
    int queues, steps, first_step, last_step;
    int number; // of this launch
} Launched;

// PUBLISH: a store that comes after all earlier accesses. OBSERVE: a load; what comes after the atomic operation by which `take` ends
// comes after it anyway. Compilers for plain SPIR, such as Oclgrind's, have the builtins in name only.
#ifdef __has_builtin
#if __has_builtin(__atomic_store_n) && (!defined(__SPIR__) || defined(__INTEL_LLVM_COMPILER))
#define PUBLISH(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define OBSERVE(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#endif
#endif
#ifndef PUBLISH
#define PUBLISH(p, v) (mem_fence(CLK_GLOBAL_MEM_FENCE), (void)atomic_xchg(p, v))
#define OBSERVE(p) (*(p))
#endif

#if QUANTIZED
// Unsigned bytes to signed ones of the same order, or back.
static void flip_signs(const Step *s, Part part, global const T *src, global T *dst)
{
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width) * s->depth_out;
    int i = part.x0 * s->unit_pixels * s->depth_out;
    for (; i + 16 <= last; i += 16)
        ((global UnalignedT16 *)(dst + i))->value = ((global const UnalignedT16 *)(src + i))->value ^ (T16)(T)0x80;
    for (; i < last; ++i)
        dst[i] = src[i] ^ (T)0x80;
}
#endif

// PoCL 3.0 makes three variants of the kernel: a function of its own is compiled once.
static __attribute__((noinline)) void run_step(const Step *s, global const Step *steps, Part part, global uchar *const *buffers,
                                                global const uchar *constants, global uchar *work)
{
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64);
    global const T *residual = (global const T *)(buffers[s->residual] + (size_t)s->residual_offset * 64);
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64);
    if (s->kind == KIND_CONVOLVE)
#if READS_DIRECTLY
        convolve(s, part, src, dst, residual, constants, (global float *)work);
#else
        convolve(s, part, src, dst, residual, constants);
#endif
    else if (s->kind == KIND_AVERAGE)
        average(s, part, src, dst);
#if QUANTIZED
    else if (s->kind == KIND_FLIP_SIGNS)
        flip_signs(s, part, src, dst);
    else if (s->kind == KIND_QUANTIZE)
        quantize_rows(s, part, (global const float *)src, dst);
    else if (s->kind == KIND_DEQUANTIZE)
        dequantize_rows(s, part, src, (global float *)dst);
#endif
#if WINOGRAD
    else if (s->kind == KIND_WINOGRAD)
        winograd(s, part, src, dst, residual, constants, (global float *)work);
#endif
#if READS_DIRECTLY
    else if (s->kind == KIND_EXPANDED) {
        const Step before = steps[s->before];
        expanded(&before, s, part, src, dst, constants, (global float *)work);
    }
#endif
#if OF_BYTES
    else if (s->kind == KIND_DEPTHWISE_BYTES)
        depthwise_bytes(s, part, src, dst, constants);
#endif
    else if (s->kind == KIND_DEPTHWISE && goes_by_columns(s))
        for (int first = 0; first < s->dilation_width; ++first)
            depthwise_by_columns(s, part, first, src, dst, constants);
    else if (s->kind == KIND_DEPTHWISE)
        depthwise(s, part, src, dst, constants);
}

#if GENERAL
// The steps of networks that are more than convolutions.
static __attribute__((noinline)) void run_general(const Step *s, global const Step *steps, Part part, global uchar *const *buffers,
                                                  global const uchar *constants)
{
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64);
    global const T *residual = (global const T *)(buffers[s->residual] + (size_t)s->residual_offset * 64);
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64);
    if (s->kind == KIND_ELEMENTWISE)
        elementwise(s, part, buffers, constants);
    else if (s->kind == KIND_REDUCE)
        reduce(s, part, src, dst, constants);
    else if (s->kind == KIND_COPY)
        copy_rows(s, part, src, dst, constants);
    else if (s->kind == KIND_GATHER)
        gather(s, part, src, (global const int *)residual, dst, (volatile global int *)(buffers[s->third] + (size_t)s->third_offset * 64),
               constants);
    else if (s->kind == KIND_TURN)
        turn(s, part, src, dst, constants);
    else if (s->kind == KIND_GREATEST)
        greatest(s, part, src, dst);
    else if (s->kind == KIND_FILL)
        fill_rows(s, part, dst);
    else if (s->kind == KIND_BILINEAR)
        resize_bilinear(s, part, src, dst, constants);
    else if (s->kind == KIND_NEAREST)
        resize_nearest(s, part, src, dst, constants);
#if DYNAMIC
    else if (s->kind == KIND_RANGES)
        find_ranges(s, part, src, (global float2 *)dst);
    else if (s->kind == KIND_TO_BYTES)
        make_bytes(s, part, src, (global uchar *)dst, (global const float2 *)residual);
    else if (s->kind == KIND_BYTES_OF_ROWS)
        make_bytes_of_rows(s, part, src, (global uchar *)dst);
    else if (s->kind == KIND_MULTIPLY_BYTES)
        multiply_bytes(s, part, (global const uchar *)src, dst, residual,
                       (global const float2 *)(buffers[s->third] + (size_t)s->third_offset * 64), constants);
#endif
#if T_IS_FLOAT
    else if (s->kind == KIND_PACK)
        pack(s, part, src, (global float *)dst, constants);
    else if (s->kind == KIND_MULTIPLY)
        multiply(s, steps, part, src, dst, (global const float *)residual, buffers, constants);
    else if (s->kind == KIND_MULTIPLY_FEW)
        multiply_few(s, steps, part, src, dst, residual, buffers, constants);
#endif
}
#endif

// Whether all that a task waits for is done, in this launch or by one of the steps before.
static inline int is_ready(const Launched *l, int at)
{
    const int last = l->tasks[at].last_wait;
    for (int i = l->tasks[at].first_wait; i < last; ++i) {
        const int other = l->waits[i];
        if (OBSERVE(l->progress + LINE * (1 + l->queues + other)) != l->number && l->tasks[other].part.step >= l->first_step)
            return 0;
    }
    return 1;
}

// Takes the next task of a queue and returns its number, or why it does not; `next` is that task if it is not ready.
static inline int take(const Launched *l, int queue, int *next)
{
    global const int *starts = l->starts + queue * (l->steps + 1);
    const int first = starts[l->first_step], end = starts[l->last_step];
    volatile global int *taken = l->progress + LINE * (1 + queue);
    for (;;) {
        const int count = *taken;
        *next = first + count;
        if (*next >= end)
            return NONE_LEFT;
        if (!is_ready(l, *next))
            return NOT_READY;
        if (atomic_cmpxchg(taken, count, count + 1) == count)
            return *next;
    }
}

// Takes a task, its own queue's rather than others'; NONE_LEFT also after some patience: whoever is waited for too long was
// interrupted, and goes on with all tasks later.
static inline int find_task(const Launched *l, int own)
{
    for (int turn = 0;; ++turn) {
        int next;
        int found = take(l, own, &next);
        int patience = found == NOT_READY ? l->tasks[next].patience : 0;
        if (found == NONE_LEFT || turn % BEFORE_HELPING == BEFORE_HELPING - 1)
            for (int i = 1; found < 0 && i < l->queues; ++i) {
                const int other = own + i < l->queues ? own + i : own + i - l->queues;
                found = take(l, other, &next);
                if (found == NOT_READY)
                    patience = max(patience, l->tasks[next].patience);
            }
        if (found >= 0)
            return found;
        if (turn >= patience)
            return NONE_LEFT;
    }
}

// No `restrict` in functions that are inlined: Oclgrind 21.10 does not know what LLVM makes of it.
TILE_KERNEL void chain(int first_step, int last_step, int step_count, int queues, global const Step *restrict steps,
                       global const Task *restrict tasks, global const int *restrict starts, global const int *restrict waits,
                       global const uchar *restrict constants, volatile global int *progress, global uchar *b0, global uchar *b1,
                       global uchar *b2, global uchar *b3, global uchar *b4, global uchar *b5, global uchar *b6, global uchar *b7,
                       global uchar *b8, global uchar *b9, global uchar *b10, global uchar *b11, global uchar *b12, global uchar *b13,
                       global uchar *b14, global uchar *b15, global uchar *work, int work_lines)
{
    FLUSH_DENORMALS;
    global uchar *const buffers[] = {b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15};
    const Launched launched = {tasks, starts, waits, progress, queues, step_count, first_step, last_step, progress[0] + 1};
    const int own = get_group_id(0) % queues, groups = get_num_groups(0);
    atomic_inc(progress + 2);
    for (;;) {
        const int at = find_task(&launched, own);
        if (at < 0)
            break;
        const Step step = steps[tasks[at].part.step];
        volatile global int *line = progress + LINE * (1 + queues + at);
        STAMP(line, BEGAN);
        if (step.kind == KIND_SOFTMAX)
            softmax_rows(&step, tasks[at].part, buffers, constants);
#if GENERAL
        else if (step.kind >= KIND_ELEMENTWISE)
            run_general(&step, steps, tasks[at].part, buffers, constants);
#endif
        else
            run_step(&step, steps, tasks[at].part, buffers, constants, work + (size_t)get_group_id(0) * work_lines * 64);
#if GENERAL
        if (step.epilogue && step.kind != KIND_MULTIPLY && step.kind != KIND_MULTIPLY_FEW) {
            const Step epilogue = steps[step.epilogue];
            elementwise(&epilogue, tasks[at].part, buffers, constants);
        }
#endif
        STAMP(line, ENDED);
        PUBLISH(line, launched.number);
    }
    // The last group makes ready for the next launch. The first one leaves after all others, or after some patience: who leaves last
    // wakes the thread that waits for the launch, whose core the first one mostly has; a core that sleeps is slow to wake for another.
    // Who has not begun may need the core on which the first one stays.
    if (atomic_inc(progress + 1) == groups - 1) {
        for (int queue = 0; queue < queues; ++queue)
            progress[LINE * (1 + queue)] = 0;
        progress[1] = 0;
        progress[0] = launched.number;
        progress[2] = 0;
    } else if (get_group_id(0) == 0) {
        for (int turn = 0; OBSERVE(progress) != launched.number; ++turn)
            if (turn >= (OBSERVE(progress + 2) == groups ? LONGEST_STAY : TIME_TO_BEGIN))
                break;
        for (int turn = 0; turn < TIME_TO_LEAVE; ++turn)
            OBSERVE(progress);
    }
}

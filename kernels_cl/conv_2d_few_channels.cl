// SPDX-License-Identifier: Apache-2.0
// conv_2d_few_channels.cl: CONV_2D of one to four input channels on GPUs, as the first layers of networks are.
// Maths    y[b,oy,ox,o] = act(bias[o] + sum over fy, fx, i of (x[b,iy,ix,i] - zero_in) * (w[o,fy,fx,i] - zero_w))
//          iy = oy * STRIDE_Y - padding top + fy * DILATION_Y, ix alike; taps outside of the image add nothing
//          quantised: act as in conv_2d.cl
// Tensors  src [batches, height, width, DEPTH], dst [batches, out height, out width, columns] of T, weights [columns, FILTER_HEIGHT,
//          FILTER_WIDTH, DEPTH] of FILTER_T; all dense; bias [columns] of T, or int (quantised)
//          multipliers, shifts [columns] (quantised only)
// Units    input (height, width, padding top, padding left), output (height, width, columns, 0)
//          zeros (zero points of src, weights, dst, 0) (quantised only); low, high: bounds of the activation
// Defines  T: float | half | uchar | char; FILTER_T: T, or char for per-channel weights; QUANTIZED: 0 | 1 (all required)
//          DEPTH, FILTER_HEIGHT, FILTER_WIDTH, STRIDE_Y, STRIDE_X, DILATION_Y, DILATION_X (required): known to the compiler, so that a
//          strip's inputs are in registers
//          STRIP: 4 | 8: neighbours of a line of the output that a work-item computes, eight channels of each (required)
//          LINES, STRIPS: a group's tile is as many lines of as many strips; their product a multiple of 8, STRIPS even (required)
//          LANES: 1 | 2 | 4: work-items that share a strip (required)
//          BLOCKS: ceil(columns / (8 * LANES)) (required)
//          SOURCE_VECTORS: 0 | 1: width * DEPTH and padding left * DEPTH are multiples of 4 (required)
//          OUTPUT_VECTORS: 0 | 1: columns is a multiple of 4 (float), or of 8 (required)
//          FLAGS: those of common/channel.h, ADDS_RESIDUAL not among them (required)
// Launch   global (ITEMS * BLOCKS * ceil(out_width / (STRIP * STRIPS)), ceil(out_height / LINES), batches), local (ITEMS, 1, 1)
// Needs    TERMS <= 256 (quantised); 16 * STAGED + 4 * TERMS * CHANNELS + 24 * CHANNELS bytes of local memory; STRIP_QUADS + 4 * STRIP
//          vectors of four registers
// Exact    quantised: bit for bit as TFLite's reference (256 products of 9-bit numbers are summed in float, 256 * 255 * 255 < 2^24);
//          float: fused multiply-adds in the order fy, fx, i, onto the bias
//
// A tile's inputs are in local memory as floats, zeros beyond the image, so that nothing is asked while sums are made. A work-item reads
// what its strip needs of a line once, in quads that begin where the strip does; it uses each quad of weights STRIP times.
#ifndef T
#error "conv_2d_few_channels.cl: define T"
#endif
#ifndef FILTER_T
#error "conv_2d_few_channels.cl: define FILTER_T"
#endif
#ifndef QUANTIZED
#error "conv_2d_few_channels.cl: define QUANTIZED"
#endif
#if !defined(DEPTH) || !defined(FILTER_HEIGHT) || !defined(FILTER_WIDTH)
#error "conv_2d_few_channels.cl: define DEPTH, FILTER_HEIGHT, FILTER_WIDTH"
#endif
#if !defined(STRIDE_Y) || !defined(STRIDE_X) || !defined(DILATION_Y) || !defined(DILATION_X)
#error "conv_2d_few_channels.cl: define STRIDE_Y, STRIDE_X, DILATION_Y, DILATION_X"
#endif
#if !defined(STRIP) || !defined(LINES) || !defined(STRIPS) || !defined(LANES) || !defined(BLOCKS)
#error "conv_2d_few_channels.cl: define STRIP, LINES, STRIPS, LANES, BLOCKS"
#endif
#if !defined(SOURCE_VECTORS) || !defined(OUTPUT_VECTORS)
#error "conv_2d_few_channels.cl: define SOURCE_VECTORS, OUTPUT_VECTORS"
#endif
#ifndef FLAGS
#error "conv_2d_few_channels.cl: define FLAGS"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"
#include "common/index.h"
#include "common/centred.h"
#include "common/channel.h"

#define CHANNELS (8 * LANES) // of a group
#define ITEMS (LANES * STRIPS * LINES)
#define TERMS (FILTER_HEIGHT * FILTER_WIDTH * DEPTH)
#define REACH(count, stride, taps, dilation) (((count) - 1) * (stride) + ((taps) - 1) * (dilation) + 1) // pixels of so many outputs
#define STAGED_LINES REACH(LINES, STRIDE_Y, FILTER_HEIGHT, DILATION_Y)
#define QUADS(pixels) (((pixels) * DEPTH + 3) / 4)
#define STAGED_QUADS QUADS(REACH(STRIPS * STRIP, STRIDE_X, FILTER_WIDTH, DILATION_X))
#define STAGED (STAGED_LINES * STAGED_QUADS)
#define STRIP_QUADS QUADS(REACH(STRIP, STRIDE_X, FILTER_WIDTH, DILATION_X))
#define STRIP_STEP (STRIP / 4 * STRIDE_X * DEPTH) // quads
#define CHANNEL(k) (((k) / RUN * LANES + lane) * RUN + (k) % RUN) // in the group's, of a work-item's k-th
#define QUAD_OF(q) (CHANNEL(4 * (q)) / 4)
#define AT_ONCE 4 // loads of a work-item before it waits for the first

// RUN: neighbouring channels that a work-item writes at once, so that those that share a strip write whole sectors of 32 bytes.
// RAW_T: an element as it is in memory.
#if T_IS_HALF
#define RUN 8
typedef ushort RAW_T;
typedef ushort4 RAW_T4;
#define FLOATS_OF(raw) vload_half4(0, (const half *)&(raw))
#define STORE_RUN(p, values) PUT_HALVES(8, p, vload8(0, values))
#elif T_IS_FLOAT
#define RUN 4
typedef float RAW_T;
typedef float4 RAW_T4;
#define FLOATS_OF(raw) (raw)
#define STORE_RUN(p, values) (*(global float4 *)(p) = vload4(0, values))
#else
#define RUN 8
typedef T RAW_T;
typedef JOIN(T, 4) RAW_T4;
#define FLOATS_OF(raw) convert_float4(convert_int4(raw) - zeros.x)
#define BYTES_OF(values) as_uint(JOIN(JOIN(convert_, T), 4)(vload4(0, values)))
#define STORE_RUN(p, values) (*(global uint2 *)(p) = (uint2)(BYTES_OF(values), BYTES_OF((values) + 4)))
#endif

#if QUANTIZED
#define SCALING , global const int *multipliers, global const int *shifts
#define ZEROS , int4 zeros
#define PADDING ((RAW_T)zeros.x)
#define FILTER_FLOAT(p, i) ((float)((int)(p)[i] - zeros.y))
#define START(q) (float4)(0)
#define TO_COMPUTE_T4 convert_int4
#define WITH_BIAS(sum, channel) ((sum) + (channel).bias)
#else
#define SCALING
#define ZEROS
#define PADDING ((RAW_T)0)
#define FILTER_FLOAT LOAD
#define START(q) (((local const float4 *)channels)[QUAD_OF(q)])
#define TO_COMPUTE_T4
#define WITH_BIAS(sum, channel) (sum) // they began with it
#endif

#if OUTPUT_VECTORS
#define WRITTEN RUN
#define WRITE STORE_RUN
#else
#define WRITTEN 1
#define WRITE(p, values) STORE(p, 0, *(values))
#endif

#define EVERY(i, count) _Pragma("unroll") for (int i = 0; i < (count); ++i)

// Whether a work-item has one of `count` after `done` of them: a constant but in the last round.
#define IS_ONE_OF(count, done) ((done) + ITEMS <= (count) || item + (done) < (count))

// Four neighbours of a line of the image, from element `from` of it on.
static inline RAW_T4 four_of(global const RAW_T *image, int is_line, int line, int from, int size, RAW_T padding)
{
#if SOURCE_VECTORS
    RAW_T4 four = (RAW_T4)(padding);
    if (is_line && inside(from, size))
        four = *(global const RAW_T4 *)(image + (line + from));
    return four;
#else
    RAW_T four[4];
    EVERY(i, 4) four[i] = is_line && inside(from + i, size) ? image[line + from + i] : padding;
    return (RAW_T4)(four[0], four[1], four[2], four[3]);
#endif
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void conv_2d_few_channels(
    global const T *src, global const FILTER_T *weights, global const BIAS_T *bias SCALING, global T *dst, int4 input, int4 output ZEROS,
    COMPUTE_T low, COMPUTE_T high)
{
    local float4 staged[STAGED], taps[TERMS * CHANNELS / 4];
    local Channel channels[CHANNELS] __attribute__((aligned(16)));
    const int item = (int)get_local_id(0), first_channel = (int)get_group_id(0) % BLOCKS * CHANNELS;
    const int first_x = (int)get_group_id(0) / BLOCKS * STRIPS * STRIP, first_y = (int)get_group_id(1) * LINES, b = (int)get_group_id(2);
    const int height = input.x, line_size = input.y * DEPTH, columns = output.z;
    const int top = first_y * STRIDE_Y - input.z, left = (first_x * STRIDE_X - input.w) * DEPTH;
    global const RAW_T *image = (global const RAW_T *)src + b * height * line_size;

#pragma unroll
    for (int done = 0; done < STAGED; done += AT_ONCE * ITEMS) {
        RAW_T4 quads[AT_ONCE];
        EVERY(i, AT_ONCE)
        {
            const uint at = item + done + i * ITEMS, line = at / STAGED_QUADS;
            const int y = top + (int)line, x = left + 4 * (int)(at - line * STAGED_QUADS);
            quads[i] = four_of(image, IS_ONE_OF(STAGED, done + i * ITEMS) && inside(y, height), y * line_size, x, line_size, PADDING);
        }
        EVERY(i, AT_ONCE)
            if (IS_ONE_OF(STAGED, done + i * ITEMS))
                staged[item + done + i * ITEMS] = FLOATS_OF(quads[i]);
    }
    const int channel = item % CHANNELS, c = min(first_channel + channel, columns - 1);
    global const FILTER_T *filter = weights + c * TERMS + item / CHANNELS;
#pragma unroll
    for (int done = 0; done < TERMS * CHANNELS; done += ITEMS)
        if (IS_ONE_OF(TERMS * CHANNELS, done))
            ((local float *)taps)[item + done] = FILTER_FLOAT(filter, done / CHANNELS);
    if (item < CHANNELS)
        READ_CHANNEL(channels[item], c);
    barrier(CLK_LOCAL_MEM_FENCE);

    // Neighbours in pairs have the same channels, and then those that share a strip: either reads few quads at a time.
    const int lane = item / 2 % LANES, place = item / (2 * LANES) * 2 + item % 2, strip = place % STRIPS, line = place / STRIPS;
    const int x = first_x + strip * STRIP, y = first_y + line;
    if (x >= output.y || y >= output.x)
        return;
    float4 sums[STRIP][2];
    EVERY(p, STRIP)
        EVERY(q, 2) sums[p][q] = START(q);
    local const float4 *inputs = staged + line * STRIDE_Y * STAGED_QUADS + strip * STRIP_STEP, *tap = taps;
#pragma unroll 1 // else a compiler reads everything first, and has too few registers
    for (int fy = 0; fy < FILTER_HEIGHT; ++fy, inputs += DILATION_Y * STAGED_QUADS) {
        float values[4 * STRIP_QUADS];
        EVERY(i, STRIP_QUADS) vstore4(inputs[i], i, values);
        EVERY(fx, FILTER_WIDTH)
            EVERY(i, DEPTH)
            {
                const float4 weight[2] = {tap[QUAD_OF(0)], tap[QUAD_OF(1)]};
                EVERY(p, STRIP)
                    EVERY(q, 2)
                        sums[p][q] = fma((float4)(values[(p * STRIDE_X + fx * DILATION_X) * DEPTH + i]), weight[q], sums[p][q]);
                tap += CHANNELS / 4;
            }
    }

    const int flags = FLAGS;
    COMPUTE_T results[STRIP][8];
    EVERY(p, STRIP)
        EVERY(q, 2) vstore4(TO_COMPUTE_T4(sums[p][q]), q, results[p]);
    EVERY(k, 8)
    {
        const Channel of_sums = channels[CHANNEL(k)];
        EVERY(p, STRIP) results[p][k] = RESULT(WITH_BIAS(results[p][k], of_sums), of_sums, 0);
    }
    global T *to = dst + nhwc_offset(b, y, x, output.x, output.y, columns) + first_channel;
    EVERY(k, 8 / WRITTEN)
    {
        if (first_channel + CHANNEL(k * WRITTEN) >= columns)
            continue;
        if (x + STRIP <= output.y) // one question for all
            EVERY(p, STRIP) WRITE(to + p * columns + CHANNEL(k * WRITTEN), results[p] + k * WRITTEN);
        else
            EVERY(p, STRIP - 1)
                if (x + p < output.y)
                    WRITE(to + p * columns + CHANNEL(k * WRITTEN), results[p] + k * WRITTEN);
    }
}

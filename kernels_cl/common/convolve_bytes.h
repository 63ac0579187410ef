// SPDX-License-Identifier: Apache-2.0
// convolve_bytes.h: convolve.h for bytes, by the instructions of dot4.h.
// Maths    as convolve.h, quantised. With x' = x for unsigned inputs, x + 128 for signed ones, zero_in' alike,
//          and w' = w - 128 for unsigned weights, w for signed ones:
//          sum (x - zero_in) * (w - zero_w) = sum x' * w' + weight_offset * sum x' - zero_in' * sum (w - zero_w)
// Tensors  as convolve.h, but
//          weights char, w' packed: [vectors of 16 channels][ceil(taps * depth_in / 4)][16][4], missing ones 0
//          (packing.py: pack_conv_weights_of_bytes). With DOT4_LANES 16 two vectors are a block of 32 channels in the order of bytes.h
//          (packing.py: convolution_lanes), and the last 16 or fewer are a vector in their own order, as all are with 8
//          bias: less zero_in' * sum (w - zero_w) (packing.py: fold_input_zero_point)
// Units    weight_offset: 128 - zero_w for unsigned weights, -zero_w for signed ones
// Exact    while taps * depth_in <= 65536, and sums are at most 2^24 in magnitude where mode is not BY_INTEGERS

#define VECTORS (DOT4_LANES / 8) // of 16 channels of a tile: their sums must fit into registers
// Weights of so many quads of 16 channels stay in a core's first cache with what else it needs.
#define GROUP_QUADS 384
// Tiles of a task whose corrections are kept from the first block on; where there are more, every group computes them again.
#define KEPT_TILES 32

static void convolve(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                     global const uchar *constants)
{
    global const int16 *weights = CONSTANT_AT(int16, s->weights), *bias = CONSTANT_AT(int16, s->bias);
    global const int *modes = CONSTANT_AT(int, s->modes);
    const InputView view = input_view(s);
    const int zero_in = s->zero_in, depth_out = s->depth_out, weight_offset = s->weight_offset;
    const int pixels = s->batches * s->out_height * s->out_width;
    const int depth = s->filter_height * s->filter_width * s->depth_in;
    const int quads = ceil_divide(depth, 4), in_place = view.pointwise && depth % 4 == 0;
    int16 stage_vectors[TILE_PIXELS * STAGE_WIDTH / 64]; // for its alignment
    uchar *const stage = (uchar *)stage_vectors;
    int corrections[TILE_PIXELS]; // weight_offset times the sum of a pixel's inputs
    PIXELS corrections[p] = 0;
    int kept[KEPT_TILES * TILE_PIXELS];
    const int group = in_place ? max(1, GROUP_QUADS / (2 * quads)) : part.y1 - part.y0;
    const int tiles = part.x1 - part.x0, groups = ceil_divide(part.y1 - part.y0, group);
    const Scaling scaling = scaling_of(s, constants);
    const RoundingModes rounding = rounding_modes();
    round_down(&rounding);

    for (int i = 0; i < groups * tiles; ++i) {
        const int y0 = part.y0 + i / tiles * group, y1 = min(y0 + group, part.y1), tile = part.x0 + i % tiles;
        const int first_pixel = tile * TILE_PIXELS;
        const int rows = min(TILE_PIXELS, pixels - first_pixel);
        const int alone = in_place && pixels == 1; // then every pixel of the tile is that one
        const int staged = !alone && (!in_place || rows < TILE_PIXELS);
        // CPUs have one address space.
        global const uchar *const x = staged ? (global const uchar *)(size_t)stage : (global const uchar *)src + (long)first_pixel * depth;
        const long step = staged ? STAGE_WIDTH : alone ? 0 : depth;
        const int chunk = staged ? DEPTH_CHUNK : 4 * quads;
        const int adds_inputs = weight_offset != 0 && (y0 == part.y0 || tiles > KEPT_TILES);
        if (!adds_inputs && weight_offset != 0)
            PIXELS corrections[p] = kept[(tile - part.x0) * TILE_PIXELS + p];
        const int end = min(2 * y1, ceil_divide(depth_out, 16));
        int vectors;
        for (int vector = 2 * y0; vector < end; vector += vectors) {
            const int channel = vector * 16, is_first = vector == 2 * y0;
            vectors = min(end - vector, VECTORS);
            global const int16 *w0 = weights + (size_t)vector * quads;
            global const int16 *w1 = vectors == 2 ? w0 + quads : w0;
            int16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
            PIXELS sum0[p] = bias[vector];
            PIXELS sum1[p] = bias[vector + vectors - 1];
            for (int k0 = 0; k0 < depth; k0 += chunk) {
                const int count = min(chunk, depth - k0);
                const int chunk_quads = ceil_divide(count, 4);
                if (staged && (is_first || depth > DEPTH_CHUNK)) {
                    for (int p = rows; p < TILE_PIXELS; ++p)
                        stage_padding(stage + p * STAGE_WIDTH, count, zero_in);
                    stage_tile(stage, src, &view, first_pixel, rows, k0, k0 + count);
                    for (int p = 0; p < TILE_PIXELS && count % 4 != 0; ++p)
                        STAGE16(stage + p * STAGE_WIDTH + count, (uchar16)TO_UNSIGNED);
                }
                global const int16 *chunk_w0 = w0 + k0 / 4, *chunk_w1 = w1 + k0 / 4;
                const int sums_inputs = is_first && adds_inputs;
                Ints sum[TILE_PIXELS];
                PIXELS sum[p] = (Ints)0;
#if VECTORS == 2
                if (sums_inputs) {
                    for (int q = 0; q < chunk_quads; ++q) {
                        const int16 x0 = chunk_w0[q], x1 = chunk_w1[q];
                        PIXELS {
                            const int16 value = spread4(x + p * step + 4 * q);
                            sum0[p] = dot4(sum0[p], value, x0);
                            sum1[p] = dot4(sum1[p], value, x1);
                            sum[p] = dot4(sum[p], value, (int16)0x01010101);
                        }
                    }
                } else if (vectors == 2) {
                    for (int q = 0; q < chunk_quads; ++q) {
                        const int16 x0 = chunk_w0[q], x1 = chunk_w1[q];
                        PIXELS {
                            const int16 value = spread4(x + p * step + 4 * q);
                            sum0[p] = dot4(sum0[p], value, x0);
                            sum1[p] = dot4(sum1[p], value, x1);
                        }
                    }
                } else
#else
                if (sums_inputs) // apart from the products, which leave no registers for it
                    for (int q = 0; q < chunk_quads; ++q)
                        PIXELS sum[p] = dot4(sum[p], spread4(x + p * step + 4 * q), (Ints)0x01010101);
#endif
                {
                    for (int q = 0; q < chunk_quads; ++q) {
                        const int16 x0 = chunk_w0[q];
                        PIXELS sum0[p] = dot4_16(sum0[p], spread4_16(x + p * step + 4 * q), x0);
                    }
                }
                if (sums_inputs)
                    PIXELS corrections[p] = (k0 == 0 ? 0 : corrections[p]) + weight_offset * sum[p].s0;
            }
            if (is_first && adds_inputs && tiles <= KEPT_TILES)
                PIXELS kept[(tile - part.x0) * TILE_PIXELS + p] = corrections[p];
            if (weight_offset != 0) {
                PIXELS sum0[p] += corrections[p];
                PIXELS sum1[p] += corrections[p];
            }
            const int offset = first_pixel * depth_out + channel;
#if VECTORS == 2
            if (vectors == 2)
                finish32(s, dst, residual, sum0, sum1, modes[vector / 2], scaling_at(scaling, vector),
                         scaling_at(scaling, vector + 1), rows, offset, min(32, depth_out - channel));
            else
#endif
                finish16(s, dst, residual, sum0, modes[vector / 2], scaling_at(scaling, vector), rows, offset,
                         min(16, depth_out - channel), &rounding);
        }
    }
    round_to_nearest(&rounding);
}

// SPDX-License-Identifier: Apache-2.0
// tiled_product.h: a tile of a product by tiles in local memory, as matmul_tiled.cl says.
// Defines  as matmul_tiled.cl (required)
// Gives    ITEMS: of a group; TILE_TERMS: TERM_T of local memory, on 16 bytes; product_tile: one tile of the output, by all of a group
//          product_tiles: some
#ifndef TILE
#error "tiled_product.h: define TILE"
#endif
#ifndef ROWS_CONTIGUOUS
#error "tiled_product.h: define ROWS_CONTIGUOUS"
#endif
#ifndef COLUMNS_CONTIGUOUS
#error "tiled_product.h: define COLUMNS_CONTIGUOUS"
#endif

#include "common/matmul.h"

#define ITEMS 256
#define DEPTH 16                 // terms of a slice that are in local memory at once
#define LINE (TILE + 4)          // of a tile in local memory: aligned vectors, terms in different banks
#define EXACT_CHUNKS (256 / DEPTH)

// RUN: elements that a work-item brings into local memory at once, and the side of its part of the tile, in vectors of PART
#define PART 4
#if TILE == 128
#define RUN 8
#define SLICES 1
#elif TILE == 64
#define RUN 4
#define SLICES 1
#elif TILE == 32
#define RUN 4
#define SLICES 4
#else
#error "matmul_tiled.cl: TILE must be 32, 64 or 128"
#endif
#define PARTS (RUN / PART)
#define LANES (TILE / RUN)                       // of a slice, along each side of its tile
#define SLICE_ITEMS (ITEMS / SLICES)
#define RUNS (TILE * DEPTH / RUN / SLICE_ITEMS)  // that a work-item brings of each side
#define TERMS (SLICES * DEPTH)                   // that a group brings at once
#define TILE_TERMS (2 * TERMS * LINE)

#if T_IS_FLOAT || QUANTIZED
#define TERM_T float
#define TO_TERM(v) ((float)(v))
#define MULTIPLY_ADD(a, b, sum) fma(a, b, sum)
#else
#define TERM_T uint
#define TO_TERM(v) as_uint(v)
#define MULTIPLY_ADD(a, b, sum) ((a) * (b) + (sum))
#endif
#define TERM_PART JOIN(TERM_T, PART)
#define TERM_RUN JOIN(TERM_T, RUN)

#if T_IS_HALF
#define LOAD_RUN(p, i, type) HALVES(RUN, (p) + (i))
#define STORE_PART(p, i, v) PUT_HALVES(PART, (p) + (i), v)
#define COMPUTE_T_NAME float
#elif T_IS_FLOAT
#define LOAD_RUN(p, i, type) (*(global const JOIN(type, RUN) *)((p) + (i)))
#define STORE_PART(p, i, v) (*(global JOIN(T, PART) *)((p) + (i)) = (v))
#define COMPUTE_T_NAME float
#elif QUANTIZED
#define LOAD_RUN(p, i, type) JOIN(convert_float, RUN)(*(global const JOIN(type, RUN) *)((p) + (i)))
#define STORE_PART(p, i, v) (*(global JOIN(T, PART) *)((p) + (i)) = JOIN(JOIN(convert_, T), PART)(v))
#define COMPUTE_T_NAME int
#else
#define LOAD_RUN(p, i, type) JOIN(as_uint, RUN)(*(global const JOIN(type, RUN) *)((p) + (i)))
#define STORE_PART(p, i, v) (*(global JOIN(T, PART) *)((p) + (i)) = (v))
#define COMPUTE_T_NAME int
#endif
#define RESULT_PART JOIN(COMPUTE_T_NAME, PART)

static inline TERM_T source_element(global const T *src, Pixel pixel, Term term, int zero, const Geometry *g)
{
    const int from = position(pixel, term.y, term.x, g);
    return from < 0 ? (TERM_T)0 : TO_TERM(CENTRED(LOAD(src, from + term.channel * g->strides.w), zero));
}

// Rows LANES apart of term k, or terms k .. k + RUN - 1 of one row.
static inline void load_source(TERM_T *run, global const T *src, const Pixel *pixels, int k, int flags, int zero, const Geometry *g)
{
    Term term = term_of(k, g);
#if ROWS_CONTIGUOUS
#pragma unroll
    for (int j = 0; j < RUN; ++j)
        run[j] = source_element(src, pixels[j], term, zero, g);
#else
    if (flags & SOURCE_VECTORS) {
        const int from = position(pixels[0], term.y, term.x, g);
        TERM_RUN v = (TERM_RUN)(0);
        if (from >= 0)
            v = CENTRED(LOAD_RUN(src, from + term.channel, T), TO_TERM(zero));
        JOIN(vstore, RUN)(v, 0, run);
        return;
    }
#pragma unroll
    for (int j = 0; j < RUN; ++j) {
        run[j] = source_element(src, pixels[0], term, zero, g);
        to_next(&term, g);
    }
#endif
}

// Columns LANES apart, from `column` on, of term k, or terms k .. k + RUN - 1 of one column.
static inline void load_weights(TERM_T *run, global const FILTER_T *weights, int column, int k, int columns, int4 layout, int zero)
{
#if COLUMNS_CONTIGUOUS
#pragma unroll
    for (int j = 0; j < RUN; ++j) {
        const int c = column + LANES * j;
        const int is_there = c < columns && k < layout.z;
        run[j] = is_there ? TO_TERM(CENTRED(LOAD_FILTER(weights, c * layout.x + k * layout.y), zero)) : (TERM_T)0;
    }
#else
    if (layout.w & FILTER_VECTORS) {
        TERM_RUN v = (TERM_RUN)(0);
        if (column < columns && k < layout.z)
            v = CENTRED(LOAD_RUN(weights, column * layout.x + k, FILTER_T), TO_TERM(zero));
        JOIN(vstore, RUN)(v, 0, run);
        return;
    }
#pragma unroll
    for (int j = 0; j < RUN; ++j) {
        const int is_there = column < columns && k + j < layout.z;
        run[j] = is_there ? TO_TERM(CENTRED(LOAD_FILTER(weights, column * layout.x + (k + j) * layout.y), zero)) : (TERM_T)0;
    }
#endif
}

// Which of the runs of a side one is: its term, or the first of its terms, in the slice, and its first line in the tile.
// `along`: it is of one term and lines LANES apart; else of one line.
#define TERM_OF(index, along) ((along) ? (index) / LANES : (index) % (DEPTH / RUN) * RUN)
#define LINE_OF(index, along) ((along) ? (index) % LANES : (index) / (DEPTH / RUN))

static inline void put_into_tile(local TERM_T *tile, const TERM_T *run, int index, int along)
{
    local TERM_T *first = tile + TERM_OF(index, along) * LINE + LINE_OF(index, along);
#pragma unroll
    for (int j = 0; j < RUN; ++j)
        first[j * (along ? LANES : LINE)] = run[j];
}

static inline void multiply_tiles(
    TERM_PART sums[RUN][PARTS], local const TERM_T *source, local const TERM_T *weights, int row_lane, int column_lane)
{
    local const TERM_PART *source_parts = (local const TERM_PART *)source, *weights_parts = (local const TERM_PART *)weights;
    for (int k = 0; k < DEPTH; ++k) {
        TERM_T left[RUN];
        TERM_PART right[PARTS];
#pragma unroll
        for (int q = 0; q < PARTS; ++q) {
            JOIN(vstore, PART)(source_parts[k * (LINE / PART) + q * LANES + row_lane], q, left);
            right[q] = weights_parts[k * (LINE / PART) + q * LANES + column_lane];
        }
#pragma unroll
        for (int j = 0; j < RUN; ++j)
#pragma unroll
            for (int q = 0; q < PARTS; ++q)
                sums[j][q] = MULTIPLY_ADD((TERM_PART)(left[j]), right[q], sums[j][q]);
    }
}

// One tile of the product, by a whole group of ITEMS; `tiles`: TILE_TERMS of local memory.
static INLINE void product_tile(int tile, local TERM_T *tiles, PARAMETERS)
{
    const Geometry g = {src_strides, input, output, window, steps, filter_layout.z, filter_layout.w};
    const int rows = row_count(output), columns = output.z, flags = filter_layout.w;
    const int slice = (int)get_local_id(0) / SLICE_ITEMS, lane = (int)get_local_id(0) % SLICE_ITEMS;
    const int tiles_across = ceil_divide(columns, TILE), tiles_down = ceil_divide(rows, TILE);
    const int group = tile / tiles_across / tiles_down;
    const int first_column = tile % tiles_across * TILE, first_row = tile / tiles_across % tiles_down * TILE;
    local TERM_T *source_tile = tiles + slice * DEPTH * LINE, *weights_tile = source_tile + TERMS * LINE;
    src += group * group_strides.x;
    weights += group * group_strides.y;
#if QUANTIZED
    const int zero_source = zeros.x, zero_filter = zeros.y;
#else
    const int zero_source = 0, zero_filter = 0;
#endif
    TERM_PART sums[RUN][PARTS];
    RESULT_PART totals[RUN][PARTS];
#pragma unroll
    for (int j = 0; j < RUN; ++j)
#pragma unroll
        for (int q = 0; q < PARTS; ++q) {
            sums[j][q] = (TERM_PART)(0);
#if QUANTIZED
            totals[j][q] = (RESULT_PART)(0);
#endif
        }

#if ROWS_CONTIGUOUS
    Pixel pixels[RUN]; // of all runs
#pragma unroll
    for (int j = 0; j < RUN; ++j)
        find_pixel(pixels + j, first_row + LINE_OF(lane, 1) + LANES * j, &g);
#define PIXELS_OF_RUN(i) pixels
#else
    Pixel pixels[RUNS];
#pragma unroll
    for (int i = 0; i < RUNS; ++i)
        find_pixel(pixels + i, first_row + LINE_OF(lane + i * SLICE_ITEMS, 0), &g);
#define PIXELS_OF_RUN(i) (pixels + (i))
#endif
    // Neighbouring work-items write neighbouring elements.
    const int row_lane = dst_strides.w == 1 ? lane / LANES : lane % LANES;
    const int column_lane = dst_strides.w == 1 ? lane % LANES : lane / LANES;

    TERM_T source_runs[RUNS][RUN], filter_runs[RUNS][RUN];
#define LOAD_RUNS(start)                                                                                                     \
    _Pragma("unroll") for (int i = 0; i < RUNS; ++i) {                                                                       \
        const int index = lane + i * SLICE_ITEMS, from = (start) + slice * DEPTH;                                            \
        load_source(source_runs[i], src, PIXELS_OF_RUN(i), from + TERM_OF(index, ROWS_CONTIGUOUS), flags, zero_source, &g); \
        load_weights(filter_runs[i], weights, first_column + LINE_OF(index, COLUMNS_CONTIGUOUS),                             \
            from + TERM_OF(index, COLUMNS_CONTIGUOUS), columns, filter_layout, zero_filter);                                 \
    }
    LOAD_RUNS(0)
    for (int start = 0; start < g.terms; start += TERMS) {
#pragma unroll
        for (int i = 0; i < RUNS; ++i) {
            put_into_tile(source_tile, source_runs[i], lane + i * SLICE_ITEMS, ROWS_CONTIGUOUS);
            put_into_tile(weights_tile, filter_runs[i], lane + i * SLICE_ITEMS, COLUMNS_CONTIGUOUS);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int next = start + TERMS;
        if (next < g.terms)
            LOAD_RUNS(next)
        if (start + slice * DEPTH < g.terms)
            multiply_tiles(sums, source_tile, weights_tile, row_lane, column_lane);
#if QUANTIZED
        if (next >= g.terms || next / TERMS % EXACT_CHUNKS == 0) {
#pragma unroll
            for (int j = 0; j < RUN; ++j)
#pragma unroll
                for (int q = 0; q < PARTS; ++q) {
                    totals[j][q] += JOIN(convert_int, PART)(sums[j][q]);
                    sums[j][q] = (TERM_PART)(0);
                }
        }
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#if !QUANTIZED
#pragma unroll
    for (int j = 0; j < RUN; ++j)
#pragma unroll
        for (int q = 0; q < PARTS; ++q)
            totals[j][q] = JOIN(as_, RESULT_PART)(sums[j][q]);
#endif
#if SLICES > 1
    // The first slice adds up what the others have, which they leave in place of the tiles.
    local RESULT_PART *others = (local RESULT_PART *)tiles + lane;
    if (slice > 0)
#pragma unroll
        for (int j = 0; j < RUN; ++j)
            others[((slice - 1) * RUN + j) * SLICE_ITEMS] = totals[j][0];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice > 0)
        return;
    for (int i = 0; i < SLICES - 1; ++i)
#pragma unroll
        for (int j = 0; j < RUN; ++j)
            totals[j][0] += others[(i * RUN + j) * SLICE_ITEMS];
#endif

    Channel channels[PARTS * PART];
#pragma unroll
    for (int i = 0; i < PARTS * PART; ++i) {
        const int c = first_column + i / PART * (LANES * PART) + column_lane * PART + i % PART;
        READ_CHANNEL(channels[i], group * group_strides.w + min(c, columns - 1));
    }
#pragma unroll
    for (int j = 0; j < RUN; ++j) {
        const int row = first_row + j / PART * (LANES * PART) + row_lane * PART + j % PART;
        if (row >= rows)
            continue;
        const int line = group * group_strides.z + output_offset(row, output, dst_strides, flags);
#pragma unroll
        for (int q = 0; q < PARTS; ++q) {
            const int c = first_column + q * (LANES * PART) + column_lane * PART;
            COMPUTE_T values[PART];
            JOIN(vstore, PART)(totals[j][q], 0, values);
#pragma unroll
            for (int i = 0; i < PART; ++i) {
                const int to = line + (c + i) * dst_strides.w;
                if (c + i < columns) {
                    const Channel channel = channels[q * PART + i];
                    values[i] = RESULT(values[i] + channel.bias, channel, RESIDUAL_AT(to));
                    if (!(flags & OUTPUT_VECTORS))
                        STORE(dst, to, values[i]);
                }
            }
            if ((flags & OUTPUT_VECTORS) && c < columns)
                STORE_PART(dst, line + c, JOIN(vload, PART)(0, values));
        }
    }
}

// Tiles first, first + step, .. of the product, by a whole group; `tiles` is free again at the end.
static INLINE void product_tiles(int first, int step, local TERM_T *tiles, PARAMETERS)
{
    const int count = ceil_divide(output.z, TILE) * ceil_divide(row_count(output), TILE) * input.w;
    for (int tile = first; tile < count; tile += step) {
        product_tile(tile, tiles, ARGUMENTS);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

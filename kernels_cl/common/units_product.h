// SPDX-License-Identifier: Apache-2.0
// units_product.h: tiles of a product by the matrix units of NVIDIA's GPUs, as matmul_units.cl says.
// Defines  as matmul_units.cl (required)
// Gives    product_tiles: some tiles of the output, by all of a group of ITEMS; STAGE: uint4 of local memory for the terms of a turn, of
//          which there are STAGES, unless DIRECT; EXCHANGE_WORDS(ITEMS) words are beside
//
// Both sides come as lines of 64 bytes: so many terms of one row or column. The instruction wants of lane 4 * g + t
// words from two places of line g; which terms are there does not matter as long as both sides agree. So that lane takes the t-th
// 16 bytes of the line, by one load, and has its words for two instructions. In the same way the columns of a lane's sums are
// chosen to be neighbours in the output.
//
// DIRECT: each lane reads its words from device memory, where the cache has what warps share: no work-item waits for another.
//
// Else lines are brought into local memory. A group's tiles, and the turns of each, follow one another as one sequence: while the terms
// of one turn are multiplied, and while a tile's results are written, those of the next STAGES - 1 turns are on their way, whichever
// tile they belong to.
#ifndef MATRIX_UNITS
#error "units_product.h: define MATRIX_UNITS"
#endif
#ifndef TILE_ROWS
#error "units_product.h: define TILE_ROWS"
#endif
#ifndef TILE_COLUMNS
#error "units_product.h: define TILE_COLUMNS"
#endif
#ifndef WARP_ROWS
#error "units_product.h: define WARP_ROWS"
#endif
#ifndef WARP_COLUMNS
#error "units_product.h: define WARP_COLUMNS"
#endif
#ifndef STAGES
#error "units_product.h: define STAGES"
#endif
#ifndef DIRECT
#error "units_product.h: define DIRECT"
#endif
#ifndef ROWS_CONTIGUOUS
#error "units_product.h: define ROWS_CONTIGUOUS"
#endif
#ifndef COLUMNS_CONTIGUOUS
#error "units_product.h: define COLUMNS_CONTIGUOUS"
#endif

#include "common/units_totals.h"
#if DIRECT
#include "common/units_direct.h"
#else
#include "common/units_staged.h"
#endif

// Tiles first, first + step, .. of the product, by a whole group of ITEMS, with FLAGS the first alone; `stages`: STAGES * STAGE of local
// memory, free again at the end.
static INLINE void product_tiles(int first, int step, local uint4 *stages, local uint *exchange, PARAMETERS)
{
#ifdef FLAGS
    filter_layout.w = FLAGS;
#endif
    const int rows = row_count(output), columns = output.z, products = input.w, flags = filter_layout.w;
    const Geometry g = {src_strides, input, output, window, steps, filter_layout.z, flags};
#if QUANTIZED
    zeros.y = flags & FILTER_CENTRED ? 0 : zeros.y;
    const int2 zero_points = zeros.xy;
    const uint outside = (uint)(zeros.x & 0xff) * ONES;
#else
    const int2 zero_points = (int2)(0, 0);
    const uint outside = 0;
#endif
    const int across = ceil_divide(columns, TILE_COLUMNS), down = ceil_divide(rows, TILE_ROWS);
    const int item = (int)get_local_id(0);
    const Lane lane = lane_of(item);
    Tile tile = tile_at(first, across, down, products);
    COMPUTE_T biases[LANE_COLUMNS];
    Totals totals;
#define LOAD_BIASES() \
    load_biases(biases, bias + tile.group * group_strides.w, tile.column * TILE_COLUMNS + lane.column, columns, &lane)

#if !DIRECT
#ifdef FLAGS
#define TO_NEXT(tile) ((tile).group = products)
#else
    const Tile by = tile_at(step, across, down, products);
#define TO_NEXT(tile) advance(&(tile), by, across, down)
#endif
    Tile coming = tile;
    Brought brought;
    int coming_k = 0;
    // Brings the terms of the next turn into stage number `into`, if there is a next.
#define BRING_NEXT(into)                                                                                                     \
    if (coming.group < products) {                                                                                           \
        if (coming_k == 0)                                                                                                   \
            begin_tile(&brought, item, coming, columns, filter_layout, &g);                                                  \
        bring_runs(stages + (into) * STAGE, item, src + coming.group * group_strides.x, weights + coming.group * group_strides.y, \
            &brought, coming_k, outside, filter_layout, &g);                                                                 \
        coming_k += DEPTH;                                                                                                   \
        if (coming_k >= g.terms) {                                                                                           \
            coming_k = 0;                                                                                                    \
            TO_NEXT(coming);                                                                                                 \
        }                                                                                                                    \
    }                                                                                                                        \
    end_of_copies();
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        BRING_NEXT(i)
    }
    int here = 0, free = STAGES - 1;
    for (; tile.group < products; TO_NEXT(tile)) {
        LOAD_BIASES();
        begin_totals(&totals, biases);
        for (int k = 0; k < g.terms; k += DEPTH) {
            WAIT_FOR_COPIES(STAGES - 2);
            barrier(CLK_LOCAL_MEM_FENCE);
            BRING_NEXT(free)
            multiply_stage(&totals, stages + here * STAGE, &lane, zero_points, exchange);
            free = here;
            here = here == STAGES - 1 ? 0 : here + 1;
        }
        finish_tile(&totals, tile, &lane, &g, ARGUMENTS);
    }
    WAIT_FOR_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE);
#else
    const Places places = places_of(tile, &lane, columns, filter_layout, &g);
    global const Bits *source = (global const Bits *)(src + tile.group * group_strides.x);
    global const Bits *filter = (global const Bits *)(weights + tile.group * group_strides.y);
    const int first_k = lane.run * RUN_TERMS;
    Fragments fragments[STAGES];
#pragma unroll
    for (int i = 0; i < STAGES; ++i)
        load_fragments(fragments + i, &places, source + i * DEPTH, filter + i * DEPTH, first_k + i * DEPTH, &g);
    LOAD_BIASES();
    begin_totals(&totals, biases);
    for (int start = 0; start < g.terms; start += STAGES * DEPTH) {
        UNROLL_UNITS for (int i = 0; i < STAGES; ++i) {
            const int k = start + i * DEPTH, next = k + STAGES * DEPTH;
            if (k < g.terms) {
                UNROLL_UNITS for (int r = 0; r < ROW_BLOCKS; ++r)
                    multiply_rows(&totals, r, fragments[i].left[2 * r], fragments[i].left[2 * r + 1], fragments[i].right, zero_points, exchange);
                add_up_columns(&totals, fragments[i].right, zero_points, exchange);
            }
            if (next < g.terms)
                load_fragments(fragments + i, &places, source + next, filter + next, first_k + next, &g);
        }
    }
    finish_tile(&totals, tile, &lane, &g, ARGUMENTS);
#endif
}

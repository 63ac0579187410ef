// SPDX-License-Identifier: Apache-2.0
// units_direct.h: terms for NVIDIA's matrix units from device memory, where the cache has what warps share.
// Defines  as matmul_units.cl (required)
// Gives    Fragments: what a lane multiplies in a turn; places_of: where they are; load_fragments
#include "common/units_tile.h"

// 16 bytes of a row or column from element `from` on, of which the first is term k; 0 where nothing is there.
static inline uint4 run_at(global const Bits *bits, int from, int k, int terms, int by_vectors)
{
    uint4 run = (uint4)(0);
    if (from < 0 || k >= terms)
        return run;
    if (by_vectors)
        return *(global const uint4 *)(bits + from);
    run.xy = *(global const uint2 *)(bits + from);
    if (k + RUN_TERMS / 2 < terms)
        run.zw = *(global const uint2 *)(bits + from + RUN_TERMS / 2);
    return run;
}

// What a lane multiplies in a turn: runs of the rows of its blocks and 8 further, and of its columns.
typedef struct {
    uint4 left[2 * ROW_BLOCKS], right[COLUMN_BLOCKS];
} Fragments;

// Where they are in memory, at the first turn; less than 0: nowhere.
typedef struct {
    int left[2 * ROW_BLOCKS], right[COLUMN_BLOCKS];
} Places;

static IN_REGISTERS Places places_of(Tile tile, const Lane *lane, int columns, int4 layout, const Geometry *g)
{
    const int first_row = tile.row * TILE_ROWS + lane->row, first_column = tile.column * TILE_COLUMNS + lane->column, k = lane->run * RUN_TERMS;
    Places places = {{0}, {0}};
#pragma unroll
    for (int i = 0; i < 2 * ROW_BLOCKS; ++i) {
        Pixel pixel;
        find_pixel(&pixel, first_row + 8 * i, g);
        places.left[i] = pixel.top < 0 ? -1 : pixel.first + k;
    }
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        const int column = first_column + COLUMN_OF(lane->line / 2, 2 * c + lane->line % 2);
        places.right[c] = column < columns ? column * layout.x + k : -1;
    }
    return places;
}

static IN_REGISTERS void load_fragments(
    Fragments *fragments, const Places *places, global const Bits *source, global const Bits *weights, int k, const Geometry *g)
{
#pragma unroll
    for (int i = 0; i < 2 * ROW_BLOCKS; ++i)
        fragments->left[i] = run_at(source, places->left[i], k, g->terms, g->flags & SOURCE_VECTORS);
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c)
        fragments->right[c] = run_at(weights, places->right[c], k, g->terms, g->flags & FILTER_VECTORS);
}

// SPDX-License-Identifier: Apache-2.0
// units_staged.h: terms for NVIDIA's matrix units by way of local memory, where work-items that load or store together do so in
// different banks (`place`).
// Defines  as matmul_units.cl (required)
// Gives    STAGE: uint4 of local memory for the terms of a turn; begin_tile, bring_runs: a work-item's part of them, into local memory;
//          multiply_stage
#include "common/units_totals.h"

#define SOURCE_RUNS (TILE_ROWS * LINE_RUNS / ITEMS) // that a work-item brings
#define FILTER_RUNS ((TILE_COLUMNS * LINE_RUNS + ITEMS - 1) / ITEMS)
#define STAGE (LINE_RUNS * (TILE_ROWS + TILE_COLUMNS))

// The line and the run of it that work-item `index` brings of a side of so many lines: neighbours bring neighbours in memory.
#define LINE_OF(index, lines, contiguous) ((contiguous) ? (index) % (lines) : (index) / LINE_RUNS)
#define RUN_OF(index, lines, contiguous) ((contiguous) ? (index) / (lines) : (index) % LINE_RUNS)
#define SOURCE_LINE(index) LINE_OF(index, TILE_ROWS, ROWS_CONTIGUOUS)
#define SOURCE_RUN(index) RUN_OF(index, TILE_ROWS, ROWS_CONTIGUOUS)
#define FILTER_LINE(index) LINE_OF(index, TILE_COLUMNS, COLUMNS_CONTIGUOUS)
#define FILTER_RUN(index) RUN_OF(index, TILE_COLUMNS, COLUMNS_CONTIGUOUS)

// Where a run is: the runs of two lines from an even one, and one run of eight lines, are each in all 32 banks.
static inline int place(int line, int run)
{
    return line * LINE_RUNS + (run ^ (line >> 1 & 3));
}

static inline void put(uint *words, int j, uint bits)
{
    words[j / WORD_TERMS] |= bits << j % WORD_TERMS * (32 / WORD_TERMS);
}

// Brings terms k .. k + RUN_TERMS - 1 of a row; `outside`: a word of what is there outside of the image; 0 beyond the terms and the rows.
static IN_REGISTERS void bring_source(local uint4 *to, global const Bits *bits, Pixel pixel, int k, uint outside, const Geometry *g)
{
    Term term = term_of(k, g);
    if (g->flags & SOURCE_VECTORS) {
        const int from = position(pixel, term.y, term.x, g);
        if (!QUANTIZED || from >= 0 || k >= g->terms)
            copy_run(to, bits + max(from, 0) + term.channel, from >= 0);
        else
            *to = (uint4)(outside);
        return;
    }
    if (g->flags & SOURCE_HALVES) {
        local uint2 *halves = (local uint2 *)to;
#pragma unroll
        for (int half_run = 0; half_run < 2; ++half_run) {
            const int from = position(pixel, term.y, term.x, g);
            if (!QUANTIZED || from >= 0 || k + half_run * (RUN_TERMS / 2) >= g->terms)
                copy_half_run(halves + half_run, bits + max(from, 0) + term.channel, from >= 0);
            else
                halves[half_run] = (uint2)(outside);
            term = term_of(k + RUN_TERMS / 2, g);
        }
        return;
    }
    uint words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < RUN_TERMS; ++j) {
        if (k + j < g->terms) {
            const int from = position(pixel, term.y, term.x, g);
            put(words, j, from < 0 ? outside & (0xffffffffu >> (32 - 32 / WORD_TERMS)) : bits[from + term.channel * g->strides.w]);
        }
        to_next(&term, g);
    }
    *to = vload4(0, words);
}

// Brings terms k .. k + RUN_TERMS - 1 of a column from `bits` on; 0 beyond the terms, and if it is not there.
static IN_REGISTERS void bring_weights(local uint4 *to, global const Bits *bits, int is_there, int k, int4 layout)
{
    if (layout.w & FILTER_HALVES) {
        copy_half_run((local uint2 *)to, bits, is_there && k < layout.z);
        copy_half_run((local uint2 *)to + 1, bits + RUN_TERMS / 2, is_there && k + RUN_TERMS / 2 < layout.z);
        return;
    }
    uint words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < RUN_TERMS; ++j)
        if (is_there && k + j < layout.z)
            put(words, j, bits[j * layout.y]);
    *to = vload4(0, words);
}

// Of the tile whose terms a work-item brings: the pixels of its runs of the source, or where these are in memory, if rows lie one after
// the other and are read by vectors; where its runs of the filter are. Less than 0: nowhere.
typedef struct {
    Pixel pixels[SOURCE_RUNS];
    int source[SOURCE_RUNS], filter[FILTER_RUNS];
} Brought;

static IN_REGISTERS void begin_tile(Brought *brought, int item, Tile tile, int columns, int4 layout, const Geometry *g)
{
#pragma unroll
    for (int j = 0; j < SOURCE_RUNS; ++j) {
        const int index = item + j * ITEMS;
        find_pixel(brought->pixels + j, tile.row * TILE_ROWS + SOURCE_LINE(index), g);
        brought->source[j] = brought->pixels[j].top < 0 ? -1 : brought->pixels[j].first + SOURCE_RUN(index) * RUN_TERMS;
    }
#pragma unroll
    for (int j = 0; j < FILTER_RUNS; ++j) {
        const int index = item + j * ITEMS, column = tile.column * TILE_COLUMNS + FILTER_LINE(index);
        const int is_there = FILTER_LINE(index) < TILE_COLUMNS && column < columns;
        brought->filter[j] = is_there ? column * layout.x + FILTER_RUN(index) * RUN_TERMS * layout.y : -1;
    }
}

// Brings a turn's runs, from term k on.
static IN_REGISTERS void bring_runs(local uint4 *stage, int item, global const T *src, global const FILTER_T *weights, const Brought *brought,
    int k, uint outside, int4 layout, const Geometry *g)
{
    global const Bits *source = (global const Bits *)src, *filter = (global const Bits *)weights + k * layout.y;
    const int are_rows = (g->flags & (SOURCE_IN_ROWS | SOURCE_VECTORS)) == (SOURCE_IN_ROWS | SOURCE_VECTORS);
#pragma unroll
    for (int j = 0; j < SOURCE_RUNS; ++j) {
        const int index = item + j * ITEMS, term = k + SOURCE_RUN(index) * RUN_TERMS;
        local uint4 *to = stage + place(SOURCE_LINE(index), SOURCE_RUN(index));
        if (are_rows)
            copy_run(to, source + k + max(brought->source[j], 0), brought->source[j] >= 0 && term < g->terms);
        else
            bring_source(to, source, brought->pixels[j], term, outside, g);
    }
#pragma unroll
    for (int j = 0; j < FILTER_RUNS; ++j) {
        const int index = item + j * ITEMS, term = k + FILTER_RUN(index) * RUN_TERMS, is_there = brought->filter[j] >= 0;
        local uint4 *to = stage + LINE_RUNS * TILE_ROWS + place(FILTER_LINE(index), FILTER_RUN(index));
        if (LINE_RUNS * TILE_COLUMNS % ITEMS != 0 && index >= LINE_RUNS * TILE_COLUMNS)
            continue;
        if (layout.w & FILTER_VECTORS)
            copy_run(to, filter + max(brought->filter[j], 0), is_there && term < g->terms);
        else
            bring_weights(to, filter + max(brought->filter[j], 0), is_there, term, layout);
    }
}

static INLINE void multiply_stage(Totals *totals, local const uint4 *source, const Lane *lane, int2 zeros, local uint *exchange)
{
    local const uint4 *weights = source + LINE_RUNS * TILE_ROWS;
    uint4 right[COLUMN_BLOCKS];
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c)
        right[c] = weights[place(lane->column + COLUMN_OF(lane->line / 2, 2 * c + lane->line % 2), lane->run)];
    UNROLL_UNITS for (int r = 0; r < ROW_BLOCKS; ++r) {
        const int row = lane->row + 16 * r;
        multiply_rows(totals, r, source[place(row, lane->run)], source[place(row + 8, lane->run)], right, zeros, exchange);
    }
    add_up_columns(totals, right, zeros, exchange);
}

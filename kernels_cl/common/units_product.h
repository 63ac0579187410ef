// SPDX-License-Identifier: Apache-2.0
// units_product.h: tiles of a product by the matrix units of NVIDIA's GPUs, as matmul_units.cl says.
// Defines  as matmul_units.cl (required)
// Gives    ITEMS: of a group; STAGE: uint4 of local memory for the terms of a turn, of which there are STAGES; EXCHANGE_WORDS(ITEMS)
//          words are beside; product_tiles: some tiles of the output, by all of a group
//
// Both sides come as lines of 64 bytes: so many terms of one row or column. The instruction wants of lane 4 * g + t
// words from two places of line g; which terms are there does not matter as long as both sides agree. So that lane takes the t-th
// 16 bytes of the line, by one load, and has its words for two instructions. In the same way the columns of a lane's sums are
// chosen to be neighbours in the output.
//
// DIRECT: each lane reads its words from device memory, where the cache has what warps share: no work-item waits for another.
//
// Else lines are brought into local memory, where work-items that load or store together do so in different banks (`place`). A group's
// tiles, and the turns of each, follow one another as one sequence: while the terms of one turn are multiplied, and while a tile's
// results are written, those of the next STAGES - 1 turns are on their way, whichever tile they belong to.
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

#include "common/matmul.h"
#include "common/mma.h"

#define WARPS_ACROSS (TILE_COLUMNS / WARP_COLUMNS)
#define ITEMS (WARP * WARPS_ACROSS * (TILE_ROWS / WARP_ROWS))
#define LINE_RUNS 4 // of 16 bytes each
#define RUN_TERMS (4 * WORD_TERMS)
#define DEPTH (LINE_RUNS * RUN_TERMS) // terms of a turn
#define SOURCE_RUNS (TILE_ROWS * LINE_RUNS / ITEMS) // that a work-item brings
#define FILTER_RUNS ((TILE_COLUMNS * LINE_RUNS + ITEMS - 1) / ITEMS)
#define STAGE (LINE_RUNS * (TILE_ROWS + TILE_COLUMNS))
#define ROW_BLOCKS (WARP_ROWS / 16)
#define COLUMN_BLOCKS (WARP_COLUMNS / 8)
#define LANE_COLUMNS (WARP_COLUMNS / 4)

// LANE_RUN: columns of a lane that are neighbours, and written together
#if WARP_COLUMNS == 32 && !BY_PARTS
#define LANE_RUN 8
#elif WARP_COLUMNS == 32 || WARP_COLUMNS == 16
#define LANE_RUN 4
#else
#error "units_product.h: WARP_COLUMNS must be 16 or 32"
#endif

#if T_IS_HALF
typedef ushort Bits;
#define LOAD_COLUMNS(p, i) HALVES(LANE_RUN, (p) + (i))
#define STORE_COLUMNS(p, i, v) PUT_HALVES(LANE_RUN, (p) + (i), v)
#elif T_IS_FLOAT
typedef uint Bits;
#define LOAD_COLUMNS(p, i) (*(global const JOIN(T, LANE_RUN) *)((p) + (i)))
#define STORE_COLUMNS(p, i, v) (*(global JOIN(T, LANE_RUN) *)((p) + (i)) = (v))
#else
typedef uchar Bits;
#define STORE_COLUMNS(p, i, v) (*(global JOIN(T, LANE_RUN) *)((p) + (i)) = JOIN(JOIN(convert_, T), LANE_RUN)(v))
#endif
#define ONES 0x01010101u // four bytes

#if MATRIX_UNITS
#define IN_REGISTERS INLINE // what a call is handed by pointer would be in memory
#define UNROLL_UNITS _Pragma("unroll")
#else
#define IN_REGISTERS inline // compiles in a third of the time
#define UNROLL_UNITS
#endif

// The line and the run of it that work-item `index` brings of a side of so many lines: neighbours bring neighbours in memory.
#define LINE_OF(index, lines, contiguous) ((contiguous) ? (index) % (lines) : (index) / LINE_RUNS)
#define RUN_OF(index, lines, contiguous) ((contiguous) ? (index) / (lines) : (index) % LINE_RUNS)
#define SOURCE_LINE(index) LINE_OF(index, TILE_ROWS, ROWS_CONTIGUOUS)
#define SOURCE_RUN(index) RUN_OF(index, TILE_ROWS, ROWS_CONTIGUOUS)
#define FILTER_LINE(index) LINE_OF(index, TILE_COLUMNS, COLUMNS_CONTIGUOUS)
#define FILTER_RUN(index) RUN_OF(index, TILE_COLUMNS, COLUMNS_CONTIGUOUS)

// Which tile: its group, and its place in the group's product, counted in tiles.
typedef struct {
    int column, row, group;
} Tile;

static inline Tile tile_at(int number, int across, int down, int products)
{
    const int row = number / across;
    Tile tile = {number - row * across, row, row >= down};
    if (products > 1) { // divisions take as long as dozens of products
        tile.group = row / down;
        tile.row = row - tile.group * down;
    }
    return tile; // beyond the last its group is products, or more
}

// Goes `by` tiles on, without a division.
static inline void advance(Tile *tile, Tile by, int across, int down)
{
    tile->column += by.column;
    tile->row += by.row;
    tile->group += by.group;
    if (tile->column >= across) {
        tile->column -= across;
        ++tile->row;
    }
    if (tile->row >= down) {
        tile->row -= down;
        ++tile->group;
    }
}

// Where a work-item's fragments are in the tile: run `run` of a row and of a column in the first block of its warp.
// `line`: the lane's of the eight lines of a fragment. It has sums of that row and of the columns that COLUMN_OF gives; those of other blocks of rows are of the rows 16 further.
typedef struct {
    int run, row, column, line;
} Lane;

static inline Lane lane_of(int item)
{
    const int warp = item / WARP, line = item % WARP / 4;
    Lane lane;
    lane.run = item % 4;
    lane.line = line;
    lane.row = warp / WARPS_ACROSS * WARP_ROWS + line;
    lane.column = warp % WARPS_ACROSS * WARP_COLUMNS;
    return lane;
}

// The column, of a warp's, that is the i-th of lane t of four: runs of neighbours.
#define COLUMN_OF(t, i) ((i) / LANE_RUN * (4 * LANE_RUN) + (t) * LANE_RUN + (i) % LANE_RUN)

// A work-item's sums; of floats those of small products apart; of bytes the sums of its rows and columns, where zero points ask for them.
typedef struct {
    Sums of[ROW_BLOCKS][COLUMN_BLOCKS];
#if BY_PARTS
    Sums rests[ROW_BLOCKS][COLUMN_BLOCKS];
#endif
#if QUANTIZED
    Sums rows[ROW_BLOCKS], columns[COLUMN_BLOCKS];
#endif
} Totals;

// Multiplies 64 bytes of rows `row` and row + 8 of block r by those of all columns.
static INLINE void multiply_rows(Totals *totals, int r, uint4 row, uint4 row_8, const uint4 *right, int2 zeros, local uint *exchange)
{
    const uint4 first = (uint4)(row.x, row_8.x, row.y, row_8.y), second = (uint4)(row.z, row_8.z, row.w, row_8.w);
#if BY_PARTS
    UNROLL_UNITS for (int c = 0; c < COLUMN_BLOCKS; ++c)
        multiply_add_parts(first, right[c].xy, &totals->of[r][c], &totals->rests[r][c], exchange);
    UNROLL_UNITS for (int c = 0; c < COLUMN_BLOCKS; ++c)
        multiply_add_parts(second, right[c].zw, &totals->of[r][c], &totals->rests[r][c], exchange);
#else
    UNROLL_UNITS for (int c = 0; c < COLUMN_BLOCKS; ++c)
        totals->of[r][c] = multiply_add(first, right[c].xy, totals->of[r][c], exchange);
    UNROLL_UNITS for (int c = 0; c < COLUMN_BLOCKS; ++c)
        totals->of[r][c] = multiply_add(second, right[c].zw, totals->of[r][c], exchange);
#endif
#if QUANTIZED
    if (!MATRIX_UNITS || zeros.y != 0) { // the stand-in has barriers, which are for all
        totals->rows[r] = multiply_add(first, (uint2)(ONES), totals->rows[r], exchange);
        totals->rows[r] = multiply_add(second, (uint2)(ONES), totals->rows[r], exchange);
    }
#endif
}

#if QUANTIZED
static INLINE void add_up_columns(Totals *totals, const uint4 *right, int2 zeros, local uint *exchange)
{
    if (!MATRIX_UNITS || zeros.x != 0)
        UNROLL_UNITS for (int c = 0; c < COLUMN_BLOCKS; ++c) {
            totals->columns[c] = multiply_add((uint4)(ONES), right[c].xy, totals->columns[c], exchange);
            totals->columns[c] = multiply_add((uint4)(ONES), right[c].zw, totals->columns[c], exchange);
        }
}
#else
#define add_up_columns(totals, right, zeros, exchange)
#endif

static IN_REGISTERS void load_biases(COMPUTE_T *biases, global const BIAS_T *bias, int first_column, int columns, const Lane *lane)
{
#pragma unroll
    for (int i = 0; i < LANE_COLUMNS; ++i)
        biases[i] = LOAD_BIAS(bias, min(first_column + COLUMN_OF(lane->run, i), columns - 1));
}

// Sums begin with the bias.
static IN_REGISTERS void begin_totals(Totals *totals, const COMPUTE_T *biases)
{
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        const SUM_T even = biases[2 * c], odd = biases[2 * c + 1];
#pragma unroll
        for (int r = 0; r < ROW_BLOCKS; ++r)
            totals->of[r][c] = (Sums)(even, odd, even, odd);
#if BY_PARTS
#pragma unroll
        for (int r = 0; r < ROW_BLOCKS; ++r)
            totals->rests[r][c] = (Sums)(0);
#endif
    }
#if QUANTIZED
#pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r)
        totals->rows[r] = (Sums)(0);
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c)
        totals->columns[c] = (Sums)(0);
#endif
}

#if QUANTIZED
// Takes off what zero points add to the sums.
static IN_REGISTERS void take_off_zeros(Totals *totals, uint zero_source, uint zero_filter, uint terms)
{
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        const uint2 of_columns = zero_source * (as_uint2(totals->columns[c].xy) - terms * zero_filter);
#pragma unroll
        for (int r = 0; r < ROW_BLOCKS; ++r) {
            const uint2 of_rows = zero_filter * as_uint2(totals->rows[r].xz);
            totals->of[r][c] = as_int4(as_uint4(totals->of[r][c]) - (uint4)(of_columns + of_rows.x, of_columns + of_rows.y));
        }
    }
}
#elif !T_IS_HALF
// Writes the results of lane t's columns of a row by plain products: infinity and its rest make NaN of what should be infinite.
static inline void finish_plainly(global const T *src, global const FILTER_T *weights, global const BIAS_T *bias, global const T *residual,
    global T *dst, int row, int first_column, int t, int columns, int stride, int line, int4 layout, const Geometry *g, float low,
    float high)
{
    Pixel pixel;
    find_pixel(&pixel, row, g);
    const int flags = g->flags;
#pragma unroll 1
    for (int i = 0; i < LANE_COLUMNS; ++i) {
        const int column = first_column + COLUMN_OF(t, i), to = column * stride;
        if (column >= columns)
            continue;
        Term term = term_of(0, g);
        float sum = bias[column];
        for (int k = 0; k < g->terms; ++k) {
            const int from = position(pixel, term.y, term.x, g);
            const float x = from >= 0 ? src[from + term.channel * g->strides.w] : 0.0f;
            sum = fma(x, weights[column * layout.x + k * layout.y], sum);
            to_next(&term, g);
        }
        STORE(dst, to, RESULT(sum, 0, RESIDUAL_AT(line + to)));
    }
}
#endif

// Writes LANE_RUN results of a row from element `to` on, of which `count` are there.
static IN_REGISTERS void finish_columns(const COMPUTE_T *sums, const Channel *channels, int to, int count, SCALING, global T *dst,
    int stride, int flags ZEROS, COMPUTE_T low, COMPUTE_T high)
{
    const int by_vectors = flags & OUTPUT_VECTORS;
    COMPUTE_T values[LANE_RUN], added[LANE_RUN];
    if (count <= 0)
        return;
#if !QUANTIZED
    if (flags & ADDS_RESIDUAL) {
        if (by_vectors)
            JOIN(vstore, LANE_RUN)(LOAD_COLUMNS(residual, to), 0, added);
        else
#pragma unroll
            for (int i = 0; i < LANE_RUN; ++i)
                added[i] = LOAD(residual, to + min(i, count - 1) * stride);
    }
#endif
#pragma unroll
    for (int i = 0; i < LANE_RUN; ++i)
        values[i] = RESULT(sums[i], channels[i], flags & ADDS_RESIDUAL ? added[i] : 0);
    if (by_vectors)
        STORE_COLUMNS(dst, to, JOIN(vload, LANE_RUN)(0, values));
    else
#pragma unroll
        for (int i = 0; i < LANE_RUN; ++i)
            if (i < count)
                STORE(dst, to + i * stride, values[i]);
}

// Writes a tile's results.
static IN_REGISTERS void finish_tile(Totals *totals, Tile tile, const Lane *lane, const Geometry *g, PARAMETERS)
{
    const int rows = row_count(output), columns = output.z, flags = g->flags, first_column = tile.column * TILE_COLUMNS + lane->column;
#if QUANTIZED
    take_off_zeros(totals, (uint)zeros.x, (uint)zeros.y, (uint)g->terms);
#elif !T_IS_HALF
#pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r)
#pragma unroll
        for (int c = 0; c < COLUMN_BLOCKS; ++c)
            totals->of[r][c] += totals->rests[r][c];
#endif
    Channel channels[LANE_COLUMNS]; // of 8 bits their scales, which would take registers until here
#pragma unroll
    for (int i = 0; i < LANE_COLUMNS; ++i)
        READ_CHANNEL(channels[i], tile.group * group_strides.w + min(first_column + COLUMN_OF(lane->run, i), columns - 1));
#pragma unroll
    for (int part = 0; part < 2 * ROW_BLOCKS; ++part) {
        const int row = tile.row * TILE_ROWS + lane->row + 8 * part;
        if (row >= rows)
            continue;
        const int line = tile.group * group_strides.z + output_offset(row, output, dst_strides, flags);
        COMPUTE_T values[LANE_COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMN_BLOCKS; ++c)
            vstore2(part % 2 ? totals->of[part / 2][c].zw : totals->of[part / 2][c].xy, c, values);
#if BY_PARTS
        int undefined = 0;
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; ++i)
            undefined |= isnan(values[i]);
        if (undefined) {
            finish_plainly(src + tile.group * group_strides.x, weights + tile.group * group_strides.y, bias + tile.group * group_strides.w,
                residual, dst + line, row, first_column, lane->run, columns, dst_strides.w, line, filter_layout, g, low, high);
            continue;
        }
#endif
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; i += LANE_RUN) {
            const int column = first_column + COLUMN_OF(lane->run, i);
            finish_columns(values + i, channels + i, line + column * dst_strides.w, columns - column, SCALING_ARGUMENTS, dst, dst_strides.w,
                flags ZEROS_ARGUMENT, low, high);
        }
    }
}

#if !DIRECT
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
#else
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

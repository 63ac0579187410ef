// SPDX-License-Identifier: Apache-2.0
// units_product.h: a tile of a product by the matrix units of NVIDIA's GPUs, as matmul_units.cl says.
// Defines  as matmul_units.cl (required)
// Gives    ITEMS: of a group; STAGE: half of the uint4 of local memory, which has EXCHANGE_WORDS(ITEMS) words beside; product_tile: one
//          tile of the output, by all of a group
//
// Both sides come into local memory as lines of 64 bytes: so many terms of one row or column. The instruction wants of lane 4 * g + t
// words from two places of line g; which terms are there does not matter as long as both sides agree. So that lane takes the t-th
// 16 bytes of the line, by one load, and has its words for two instructions. In the same way the columns of a lane's sums are
// chosen to be neighbours in the output. Work-items that load or store together do so in different banks (`place`).
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
#define DEPTH (LINE_RUNS * RUN_TERMS) // terms that are in local memory at once, twice: those in use, and those that come
#define SOURCE_RUNS (TILE_ROWS * LINE_RUNS / ITEMS) // that a work-item brings
#define FILTER_RUNS (TILE_COLUMNS * LINE_RUNS / ITEMS)
#define STAGE (LINE_RUNS * (TILE_ROWS + TILE_COLUMNS))
#define ROW_BLOCKS (WARP_ROWS / 16)
#define COLUMN_BLOCKS (WARP_COLUMNS / 8)

#if WARP_COLUMNS == 32
#define LANE_COLUMNS 8
#elif WARP_COLUMNS == 16
#define LANE_COLUMNS 4
#else
#error "units_product.h: WARP_COLUMNS must be 16 or 32"
#endif

#if T_IS_HALF
typedef ushort Bits;
#define STORE_COLUMNS(p, i, v) JOIN(JOIN(vstorea_half, LANE_COLUMNS), _rte)(v, 0, (p) + (i))
#else
typedef uchar Bits;
#define STORE_COLUMNS(p, i, v) (*(global JOIN(T, LANE_COLUMNS) *)((p) + (i)) = JOIN(JOIN(convert_, T), LANE_COLUMNS)(v))
#define FILTER_IS_SIGNED (JOIN(TYPE_NUMBER_, FILTER_T) == TYPE_NUMBER_char)
#endif

#if MATRIX_UNITS
#define IN_REGISTERS INLINE // what a call is handed by pointer would be in memory
#else
#define IN_REGISTERS inline // compiles in a third of the time
#endif

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

// Terms k .. k + RUN_TERMS - 1 of a row; `outside`: what is there outside of the image; 0 beyond the terms.
static inline uint4 source_run(global const T *src, Pixel pixel, int k, int vectors, uint outside, const Geometry *g)
{
    global const Bits *bits = (global const Bits *)src;
    Term term = term_of(k, g);
    uint words[4] = {0, 0, 0, 0};
    if (vectors & SOURCE_VECTORS) {
        if (k >= g->terms)
            return (uint4)(0);
        const int from = position(pixel, term.y, term.x, g);
        return from < 0 ? (uint4)(outside * 0x01010101u) : *(global const uint4 *)(bits + from + term.channel);
    }
#pragma unroll
    for (int j = 0; j < RUN_TERMS; ++j) {
        if (k + j < g->terms) {
            const int from = position(pixel, term.y, term.x, g);
            put(words, j, from < 0 ? outside : bits[from + term.channel * g->strides.w]);
        }
        to_next(&term, g);
    }
    return vload4(0, words);
}

// Terms k .. k + RUN_TERMS - 1 of a column; 0 beyond the terms and the columns.
static inline uint4 filter_run(global const FILTER_T *weights, int column, int k, int columns, int4 layout)
{
    global const Bits *bits = (global const Bits *)weights + column * layout.x + k * layout.y;
    uint words[4] = {0, 0, 0, 0};
    if (column >= columns || k >= layout.z)
        return (uint4)(0);
    if (layout.w & FILTER_VECTORS)
        return *(global const uint4 *)bits;
#pragma unroll
    for (int j = 0; j < RUN_TERMS; ++j)
        if (k + j < layout.z)
            put(words, j, bits[j * layout.y]);
    return vload4(0, words);
}

// Where a work-item's fragments are in the tile: run `run` of a row and of a column in the first block of its warp.
// It has sums of that row and of `own_column`; those of the other blocks are of the rows 16 further, of the next two columns.
typedef struct {
    int run, row, column, own_column;
} Lane;

static inline Lane lane_of(int item)
{
    const int warp = item / WARP, line = item % WARP / 4, first_column = warp % WARPS_ACROSS * WARP_COLUMNS;
    Lane lane;
    lane.run = item % 4;
    lane.row = warp / WARPS_ACROSS * WARP_ROWS + line;
    lane.column = first_column + line / 2 * LANE_COLUMNS + line % 2;
    lane.own_column = first_column + lane.run * LANE_COLUMNS;
    return lane;
}

static INLINE void multiply_tiles(
    Sums sums[ROW_BLOCKS][COLUMN_BLOCKS], local const uint4 *source, local const uint4 *weights, const Lane *lane, local uint *exchange)
{
    uint4 right[COLUMN_BLOCKS];
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c)
        right[c] = weights[place(lane->column + 2 * c, lane->run)];
#if MATRIX_UNITS
#pragma unroll
#endif
    for (int r = 0; r < ROW_BLOCKS; ++r) {
        const uint4 upper = source[place(lane->row + 16 * r, lane->run)], lower = source[place(lane->row + 16 * r + 8, lane->run)];
#if MATRIX_UNITS
#pragma unroll
#endif
        for (int c = 0; c < COLUMN_BLOCKS; ++c)
            sums[r][c] = multiply_add((uint4)(upper.x, lower.x, upper.y, lower.y), right[c].xy, sums[r][c], exchange);
#if MATRIX_UNITS
#pragma unroll
#endif
        for (int c = 0; c < COLUMN_BLOCKS; ++c)
            sums[r][c] = multiply_add((uint4)(upper.z, lower.z, upper.w, lower.w), right[c].zw, sums[r][c], exchange);
    }
}

// What a work-item brings: runs of source and filter, and 8-bit the sum of all that it brought of each line.
typedef struct {
    uint4 source[SOURCE_RUNS], filter[FILTER_RUNS];
#if QUANTIZED
    int source_sums[SOURCE_RUNS], filter_sums[FILTER_RUNS];
#endif
} Brought;

static IN_REGISTERS void load_runs(
    Brought *brought, int item, global const T *src, global const FILTER_T *weights, const Pixel *pixels, int first_column, int k,
    uint outside, int columns, int4 layout, const Geometry *g)
{
#pragma unroll
    for (int j = 0; j < SOURCE_RUNS; ++j)
        brought->source[j]
            = source_run(src, pixels[j], k + SOURCE_RUN(item + j * ITEMS) * RUN_TERMS, layout.w, outside, g);
#pragma unroll
    for (int j = 0; j < FILTER_RUNS; ++j) {
        const int index = item + j * ITEMS;
        brought->filter[j]
            = filter_run(weights, first_column + FILTER_LINE(index), k + FILTER_RUN(index) * RUN_TERMS, columns, layout);
    }
}

static IN_REGISTERS void put_into_stage(local uint4 *stage, int item, int zero_source, int zero_filter, Brought *brought)
{
#pragma unroll
    for (int j = 0; j < SOURCE_RUNS; ++j) {
        stage[place(SOURCE_LINE(item + j * ITEMS), SOURCE_RUN(item + j * ITEMS))] = brought->source[j];
#if QUANTIZED
        if (zero_filter != 0)
            brought->source_sums[j] = sum_of_bytes(brought->source[j], T_IS_SIGNED, brought->source_sums[j]);
#endif
    }
#pragma unroll
    for (int j = 0; j < FILTER_RUNS; ++j) {
        stage[LINE_RUNS * TILE_ROWS + place(FILTER_LINE(item + j * ITEMS), FILTER_RUN(item + j * ITEMS))] = brought->filter[j];
#if QUANTIZED
        if (zero_source != 0)
            brought->filter_sums[j] = sum_of_bytes(brought->filter[j], FILTER_IS_SIGNED, brought->filter_sums[j]);
#endif
    }
}

#if QUANTIZED
static IN_REGISTERS void begin_sums(Brought *brought)
{
#pragma unroll
    for (int j = 0; j < SOURCE_RUNS; ++j)
        brought->source_sums[j] = 0;
#pragma unroll
    for (int j = 0; j < FILTER_RUNS; ++j)
        brought->filter_sums[j] = 0;
}

// Sums of rows, then of columns, in four parts each: where the work-item that brought a part has its index.
static IN_REGISTERS void share_sums(local int *parts, int item, const Brought *brought)
{
#pragma unroll
    for (int j = 0; j < SOURCE_RUNS; ++j)
        parts[item + j * ITEMS] = brought->source_sums[j];
#pragma unroll
    for (int j = 0; j < FILTER_RUNS; ++j)
        parts[LINE_RUNS * TILE_ROWS + item + j * ITEMS] = brought->filter_sums[j];
}

static inline int sum_of_line(local const int *parts, int line, int lines, int contiguous)
{
    const int first = contiguous ? line : line * LINE_RUNS, step = contiguous ? lines : 1;
    return parts[first] + parts[first + step] + parts[first + 2 * step] + parts[first + 3 * step];
}

// Takes off what zero points add to the sums.
static IN_REGISTERS void take_off_zeros(
    Sums sums[ROW_BLOCKS][COLUMN_BLOCKS], local const int *row_parts, const Lane *lane, uint zero_source, uint zero_filter, int terms)
{
    local const int *column_parts = row_parts + LINE_RUNS * TILE_ROWS;
    uint of_columns[LANE_COLUMNS];
#pragma unroll
    for (int i = 0; i < LANE_COLUMNS; ++i)
        of_columns[i] = zero_source
                        * ((uint)sum_of_line(column_parts, lane->own_column + i, TILE_COLUMNS, COLUMNS_CONTIGUOUS)
                           - (uint)terms * zero_filter);
#pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r) {
        const int row = lane->row + 16 * r;
        const uint upper = zero_filter * (uint)sum_of_line(row_parts, row, TILE_ROWS, ROWS_CONTIGUOUS);
        const uint lower = zero_filter * (uint)sum_of_line(row_parts, row + 8, TILE_ROWS, ROWS_CONTIGUOUS);
#pragma unroll
        for (int c = 0; c < COLUMN_BLOCKS; ++c) {
            const uint2 of_pair = vload2(c, of_columns);
            sums[r][c] = as_int4(as_uint4(sums[r][c]) - (uint4)(of_pair + upper, of_pair + lower));
        }
    }
}
#endif

// One tile of the product, by a whole group of ITEMS; `stages`: 2 * STAGE of local memory.
static INLINE void product_tile(int tile, local uint4 *stages, local uint *exchange, PARAMETERS)
{
    const Geometry g = {src_strides, input, output, window, steps, filter_layout.z, filter_layout.w};
    const int rows = row_count(output), columns = output.z, vectors = filter_layout.w;
    const int item = (int)get_local_id(0);
    const int tiles_across = ceil_divide(columns, TILE_COLUMNS), tiles_down = ceil_divide(rows, TILE_ROWS);
    const int group = tile / tiles_across / tiles_down;
    const int first_column = tile % tiles_across * TILE_COLUMNS, first_row = tile / tiles_across % tiles_down * TILE_ROWS;
    const Lane lane = lane_of(item);
    src += group * group_strides.x;
    weights += group * group_strides.y;

    Sums sums[ROW_BLOCKS][COLUMN_BLOCKS];
#pragma unroll
    for (int r = 0; r < ROW_BLOCKS; ++r)
#pragma unroll
        for (int c = 0; c < COLUMN_BLOCKS; ++c)
            sums[r][c] = (Sums)(0);
    Pixel pixels[SOURCE_RUNS];
#pragma unroll
    for (int j = 0; j < SOURCE_RUNS; ++j)
        pixels[j] = pixel_of(first_row + SOURCE_LINE(item + j * ITEMS), &g);
    Brought brought;
#if QUANTIZED
    const int zero_source = zeros.x, zero_filter = zeros.y;
    begin_sums(&brought);
#else
    const int zero_source = 0, zero_filter = 0;
#endif

    load_runs(&brought, item, src, weights, pixels, first_column, 0, (uchar)zero_source, columns, filter_layout, &g);
    put_into_stage(stages, item, zero_source, zero_filter, &brought);
    for (int k = 0; k < g.terms; k += DEPTH) {
        local uint4 *here = stages + k / DEPTH % 2 * STAGE, *coming = stages + (k / DEPTH + 1) % 2 * STAGE;
        const int next = k + DEPTH;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (next < g.terms)
            load_runs(&brought, item, src, weights, pixels, first_column, next, (uchar)zero_source, columns, filter_layout, &g);
        multiply_tiles(sums, here, here + LINE_RUNS * TILE_ROWS, &lane, exchange);
        if (next < g.terms)
            put_into_stage(coming, item, zero_source, zero_filter, &brought);
    }

#if QUANTIZED
    barrier(CLK_LOCAL_MEM_FENCE);
    share_sums((local int *)stages, item, &brought);
    barrier(CLK_LOCAL_MEM_FENCE);
    take_off_zeros(sums, (local const int *)stages, &lane, (uint)zero_source, (uint)zero_filter, g.terms);
#endif
    const int column = first_column + lane.own_column;
    Channel channels[LANE_COLUMNS];
#pragma unroll
    for (int i = 0; i < LANE_COLUMNS; ++i)
        channels[i] = CHANNEL_OF(group * group_strides.w + min(column + i, columns - 1));
#pragma unroll
    for (int part = 0; part < 2 * ROW_BLOCKS; ++part) {
        const int row = first_row + lane.row + 8 * part;
        if (row >= rows)
            continue;
        const int line = group * group_strides.z + output_offset(row, output, dst_strides, vectors);
        COMPUTE_T values[LANE_COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMN_BLOCKS; ++c)
            vstore2(part % 2 ? sums[part / 2][c].zw : sums[part / 2][c].xy, c, values);
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; ++i) {
            const int to = line + (column + i) * dst_strides.w;
            if (column + i < columns) {
                values[i] = RESULT(values[i], channels[i], to);
                if (!(vectors & OUTPUT_VECTORS))
                    STORE(dst, to, values[i]);
            }
        }
        if ((vectors & OUTPUT_VECTORS) && column < columns)
            STORE_COLUMNS(dst, line + column, JOIN(vload, LANE_COLUMNS)(0, values));
    }
}

// SPDX-License-Identifier: Apache-2.0
// units_totals.h: the sums of a tile by NVIDIA's matrix units, from the bias to the results in memory.
// Defines  as matmul_units.cl (required)
// Gives    Totals; load_biases, begin_totals, multiply_rows, add_up_columns, finish_tile
#include "common/units_tile.h"

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

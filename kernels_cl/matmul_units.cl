// SPDX-License-Identifier: Apache-2.0
// matmul_units.cl: CONV_2D, GROUPED_CONV_2D, FULLY_CONNECTED, BATCH_MATMUL by the matrix units of NVIDIA's GPUs.
// Maths    y[row, column] = act(bias[column] + sum over terms of (x[row, term] - zero_in) * (w[column, term] - zero_w)  [+ residual])
//          taps outside of the image add nothing; quantised: act as in conv_2d.cl, and the zero points come off behind the sum:
//          sum x * w - zero_in * sum w - zero_w * sum x + terms * zero_in * zero_w, where x outside of the image is zero_in
// Tensors  as common/matmul.h says; any layout that has strides
// Units    strides and sizes in elements
// Defines  T, FILTER_T, QUANTIZED: as common/matmul.h says; half, or 8-bit (required)
//          MATRIX_UNITS: as common/mma.h says (required)
//          TILE_ROWS, TILE_COLUMNS: of a group's tile; WARP_ROWS, WARP_COLUMNS: of the part of 32 work-items (required)
//          ROWS_CONTIGUOUS: 0 | 1 (required): neighbours in memory of an element of src are terms | rows
//          COLUMNS_CONTIGUOUS: 0 | 1 (required): neighbours in memory of a weight are terms | columns
// Launch   global (ITEMS * ceil(columns / TILE_COLUMNS) * ceil(rows / TILE_ROWS) * groups), local (ITEMS); one group per tile
// Needs    WARP_ROWS a multiple of 16, WARP_COLUMNS 16 or 32; ITEMS a multiple of both sides of the tile, at most 4 times as many;
//          128 * (TILE_ROWS + TILE_COLUMNS) bytes of local memory
//          SOURCE_VECTORS: group_depth and strides are multiples of RUN_TERMS, FILTER_VECTORS: terms and stride of a column are
//          OUTPUT_VECTORS: columns and strides are multiples of LANE_COLUMNS, channels dense
// Exact    quantised: yes; half: products are exact, sums float in an order of the hardware's, rounded once behind the bias
//          [and once before the residual]
#include "common/units_product.h"

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void matmul_units(PARAMETERS)
{
    local uint4 stages[2 * STAGE];
    local uint exchange[EXCHANGE_WORDS(ITEMS)];
    product_tile((int)get_group_id(0), stages, exchange, ARGUMENTS);
}

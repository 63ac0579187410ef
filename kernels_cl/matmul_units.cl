// SPDX-License-Identifier: Apache-2.0
// matmul_units.cl: CONV_2D, GROUPED_CONV_2D, FULLY_CONNECTED, BATCH_MATMUL by the matrix units of NVIDIA's GPUs.
// Maths    y[row, column] = act(bias[column] + sum over terms of (x[row, term] - zero_in) * (w[column, term] - zero_w)  [+ residual])
//          taps outside of the image add nothing; quantised: act as in conv_2d.cl, and the zero points come off behind the sum:
//          sum x * w - zero_in * sum w - zero_w * sum x + terms * zero_in * zero_w, where x outside of the image is zero_in
// Tensors  as common/matmul.h says; any layout that has strides
// Units    strides and sizes in elements
// Defines  T, FILTER_T, QUANTIZED: as common/matmul.h says; float, half, or 8-bit (required)
//          MATRIX_UNITS: as common/mma.h says (required)
//          TILE_ROWS, TILE_COLUMNS: of a group's tile; WARP_ROWS, WARP_COLUMNS: of the part of 32 work-items (required)
//          DIRECT: 0 | 1 (required): terms come by local memory | lanes read them from device memory
//          STAGES: turns whose terms are there at once, those that are on their way among them; at least 2, or 1 if DIRECT (required)
//          ROWS_CONTIGUOUS: 0 | 1 (required): neighbours in memory of an element of src are terms | rows
//          COLUMNS_CONTIGUOUS: 0 | 1 (required): neighbours in memory of a weight are terms | columns
//          FLAGS: of every launch, as common/matmul.h says; unless defined it is looked at in filter_layout
// Launch   global (ITEMS * groups), local (ITEMS); a group for each tile or, without FLAGS, any number, which take turns
// Needs    WARP_ROWS a multiple of 16, WARP_COLUMNS 16 or 32; ITEMS a multiple of TILE_ROWS, at most 4 times as many, and of TILE_COLUMNS;
//          64 * STAGES * (TILE_ROWS + TILE_COLUMNS) bytes of local memory, unless DIRECT
//          DIRECT: FLAGS, with SOURCE_IN_ROWS, SOURCE_HALVES and FILTER_HALVES at least; terms are neighbours in rows and columns
//          SOURCE_VECTORS: group_depth and strides are multiples of RUN_TERMS, FILTER_VECTORS: terms and stride of a column are
//          SOURCE_HALVES, FILTER_HALVES: of half of that; OUTPUT_VECTORS: columns and strides are multiples of LANE_RUN, channels dense
// Exact    quantised: yes; half: products are exact, sums float in an order of the hardware's, rounded once behind all terms
//          [and once before the residual]; float: products as common/mma.h says, sums as of half
#include "common/units_product.h"

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void matmul_units(PARAMETERS)
{
#if !DIRECT
    local uint4 stages[STAGES * STAGE];
#else
    local uint4 *stages = 0;
#endif
    local uint exchange[EXCHANGE_WORDS(ITEMS)];
    product_tiles((int)get_group_id(0), (int)get_num_groups(0), stages, exchange, ARGUMENTS);
}

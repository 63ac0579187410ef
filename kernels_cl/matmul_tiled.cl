// SPDX-License-Identifier: Apache-2.0
// matmul_tiled.cl: CONV_2D, GROUPED_CONV_2D, FULLY_CONNECTED, BATCH_MATMUL on GPUs: tiles of the output by groups of work-items.
// Maths    y[row, column] = act(bias[column] + sum over terms of (x[row, term] - zero_in) * (w[column, term] - zero_w)  [+ residual])
//          taps outside of the image add nothing; quantised: act as in conv_2d.cl; int wraps
// Tensors  as common/matmul.h says; any layout that has strides
// Units    strides and sizes in elements
// Defines  T, FILTER_T, QUANTIZED: as common/matmul.h says (required)
//          TILE: 32 | 64 | 128 (required): rows and columns of a tile; a work-item has 4, 4 or 8 of each
//          ROWS_CONTIGUOUS: 0 | 1 (required): neighbours in memory of an element of src are terms | rows
//          COLUMNS_CONTIGUOUS: 0 | 1 (required): neighbours in memory of a weight are terms | columns
// Launch   global (256 * ceil(columns / TILE) * ceil(rows / TILE) * groups), local (256); one group of work-items per tile
// Needs    2 * 16 * (TILE + 4) * 4 bytes of local memory, TILE 32: four times as many; SOURCE_VECTORS: group_depth and strides are
//          multiples of RUN, FILTER_VECTORS: terms and stride of a column are; OUTPUT_VECTORS: columns and strides are multiples of
//          PART, channels dense
// Exact    quantised and int: yes (256 products of 9-bit numbers are summed in float, 256 * 255 * 255 < 2^24, those sums in int);
//          float: fused multiply-adds in the order of terms, TILE 32: of sixteen terms of every 64, then of those four sums; then the bias
//
// Tiles of 32 x 32 are for products with few groups, which wait for their terms: four slices of a group's work-items have the whole
// tile each, for a quarter of the terms, so that 64 terms come at once, and a value in local memory is used as often as in tiles of 64.
#include "common/tiled_product.h"

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void matmul_tiled(PARAMETERS)
{
    local TERM_T tiles[TILE_TERMS] __attribute__((aligned(16)));
    product_tile((int)get_group_id(0), tiles, ARGUMENTS);
}

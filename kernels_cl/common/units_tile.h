// SPDX-License-Identifier: Apache-2.0
// units_tile.h: the tile of a group that works with NVIDIA's matrix units, and what of it is a work-item's.
// Defines  as matmul_units.cl (required)
// Gives    ITEMS: of a group; DEPTH: terms of a turn, LINE_RUNS runs of RUN_TERMS; Tile, Lane; COLUMN_OF: the columns of a lane's sums;
//          LANE_RUN of them are neighbours, LOAD_COLUMNS and STORE_COLUMNS move these together; Bits: an element as it is stored
#include "common/matmul.h"
#include "common/mma.h"

#define WARPS_ACROSS (TILE_COLUMNS / WARP_COLUMNS)
#define ITEMS (WARP * WARPS_ACROSS * (TILE_ROWS / WARP_ROWS))
#define LINE_RUNS 4 // of 16 bytes each
#define RUN_TERMS (4 * WORD_TERMS)
#define DEPTH (LINE_RUNS * RUN_TERMS) // terms of a turn
#define ROW_BLOCKS (WARP_ROWS / 16)
#define COLUMN_BLOCKS (WARP_COLUMNS / 8)
#define LANE_COLUMNS (WARP_COLUMNS / 4)

// LANE_RUN: columns of a lane that are neighbours, and written together
#if WARP_COLUMNS == 32 && !BY_PARTS
#define LANE_RUN 8
#elif WARP_COLUMNS == 32 || WARP_COLUMNS == 16
#define LANE_RUN 4
#else
#error "units_tile.h: WARP_COLUMNS must be 16 or 32"
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

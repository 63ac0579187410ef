// SPDX-License-Identifier: Apache-2.0
// copy_step.h: rows of a tensor to other places, and filling a tensor, as steps of chain.cl.
// Maths    COPY: row (i, j, k, l), counted over sizes, goes from src + from + i * from_strides[0] + ... to dst + to + i * to_strides[0] + ...
//          TURN: of a matrix at such places, element (y, x) from y * from_line + x * from_column to y * to_line + x * to_column
//          FILL: dst = low
// Tensors  src, dst of T; rows batches * out_height * out_width, of depth_out elements, those of FILL dense; weights: Block, of COPY; Turned,
//          of TURN, whose rows are parts of matrices: TURNED_LINES lines of 16 columns
// Units    places and strides in elements
// Needs    TURN: column_blocks, line_blocks: parts of a matrix across and down, the last of each moved back to be whole
// Exact    yes

#define TURNED_LINES 256

typedef struct {
    int from, to;
    int sizes[4], from_strides[4], to_strides[4];
} Block;

typedef struct {
    Block of;
    int columns, from_column, to_column;
    int lines, from_line, to_line;
    int column_blocks, line_blocks;
} Turned;

// A row of a block: its place in every dimension, and where it begins in src and in dst.
typedef struct {
    size_t from, to;
    int at[4];
} BlockRow;

static inline BlockRow row_of_block(const Block *of, int row)
{
    BlockRow found = {of->from, of->to, {0, 0, 0, 0}};
    for (int d = 3; d >= 0; --d) {
        found.at[d] = row % of->sizes[d];
        row /= of->sizes[d];
        found.from += (size_t)found.at[d] * of->from_strides[d];
        found.to += (size_t)found.at[d] * of->to_strides[d];
    }
    return found;
}

// Divisions take longer than to copy a row.
static inline void go_to_next_row(const Block *of, BlockRow *row)
{
    for (int d = 3; d >= 0; --d) {
        row->from += of->from_strides[d];
        row->to += of->to_strides[d];
        if (++row->at[d] < of->sizes[d])
            return;
        row->at[d] = 0;
        row->from -= (size_t)of->sizes[d] * of->from_strides[d];
        row->to -= (size_t)of->sizes[d] * of->to_strides[d];
    }
}

static void copy_rows(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const Block of = *CONSTANT_AT(Block, s->weights);
    const int first = part.x0 * s->unit_pixels, depth = s->depth_out;
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    BlockRow row = row_of_block(&of, first);
    for (int i = first; i < last; ++i, go_to_next_row(&of, &row))
        move_neighbours((global const RAW *)src + row.from, (global RAW *)dst + row.to, depth);
}

static void turn(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const Turned t = *CONSTANT_AT(Turned, s->weights);
    const bool dense = t.from_column == 1 && t.to_line == 1;
    const bool by_tiles = dense && t.columns >= 16 && t.lines >= 16;
    const bool few_lines = dense && t.columns >= 16 && IS_FEW(t.lines) && t.to_column == t.lines;
    const bool few_columns = dense && t.lines >= 16 && IS_FEW(t.columns) && t.from_line == t.columns;
    const int parts = t.line_blocks * t.column_blocks;
    BlockRow matrix = row_of_block(&t.of, part.x0 / parts);
    for (int row = part.x0; row < part.x1; ++row) {
        if (row > part.x0 && row % parts == 0)
            go_to_next_row(&t.of, &matrix);
        const int x = max(0, min(row / t.line_blocks % t.column_blocks * 16, t.columns - 16)), columns = min(16, t.columns);
        const int first = row % t.line_blocks * TURNED_LINES, last = min(first + TURNED_LINES, t.lines);
        global const RAW *taken = (global const RAW *)src + matrix.from + (long)x * t.from_column;
        global RAW *made = (global RAW *)dst + matrix.to + (long)x * t.to_column;
        if (few_lines)
            interleave_few(taken, made, t.from_line, t.lines);
        else if (by_tiles || few_columns)
            for (int line = first; line < last; line += 16) {
                const int y = min(line, t.lines - 16);
                if (by_tiles)
                    turn_tile(taken + (long)y * t.from_line, made + y, t.from_line, t.to_column);
                else
                    separate_few(taken + (long)y * t.from_line, made + y, t.to_column, t.columns);
            }
        else
            for (int y = first; y < last; ++y)
                for (int i = 0; i < columns; ++i)
                    made[(long)y * t.to_line + (long)i * t.to_column] = taken[(long)y * t.from_line + (long)i * t.from_column];
    }
}

static void fill_rows(const Step *s, Part part, global T *dst)
{
    const int last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width) * s->depth_out;
    const COMPUTE_T value = s->low;
    int i = part.x0 * s->unit_pixels * s->depth_out;
    for (; i + 16 <= last; i += 16)
        STORE16(dst, i, (COMPUTE_T16)value);
    for (; i < last; ++i)
        STORE(dst, i, value);
}

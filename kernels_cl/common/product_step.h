// SPDX-License-Identifier: Apache-2.0
// product_step.h: BATCH_MATMUL of real numbers as steps of chain.cl: one packs the right sides, one multiplies by them; or, for few rows,
//          one that multiplies by right sides as they are.
// Maths    y[b,r,c] = sum over d of lhs[b,r,d] * rhs[b,d,c]
// Tensors  lhs [batches, rows, depth], y [batches, rows, columns] of T, dense; pack, multiply_few: rhs [batches, depth, columns] of T,
//          or [batches, columns, depth] if transposed; weights: RightOf
//          packed: float [batches][ceil(columns / 16)][depth][16], missing columns 0
// Defines  common/tile.h, common/prefetch.h, common/lanes.h (required, before inclusion)
// Units    a task of pack: blocks of 16 columns, counted over all batches, TILE_PIXELS at once; of the product: tiles of TILE_PIXELS rows,
//          each matrix apart, the last begins with rows of the one before and stores those that are its own; of multiply_few: matrices, and
//          blocks of `unit_channels` columns
// Exact    fused multiply-adds in the order of d, of multiply_few with a transposed right side sixteen sums of every sixteenth d

typedef struct {
    int depth, columns, transposed;
} RightOf;

// Sixteen columns of a right side that lie as rows of `depth` each; `count` of them are there.
static inline void pack_rows(global const T *src, global float16 *packed, int depth, int count)
{
    for (int d = 0; d < depth; d += 16) {
        const int lanes = min(16, depth - d);
        float16 tile[16];
        for (int i = 0; i < 16; ++i)
            tile[i] = i < count ? load_lanes(src + (size_t)i * depth, d, lanes) : (float16)0.0f;
        transpose16(tile);
        for (int i = 0; i < lanes; ++i)
            packed[d + i] = tile[i];
    }
}

static void pack(const Step *s, Part part, global const T *src, global float *dst, global const uchar *constants)
{
    const RightOf right = *CONSTANT_AT(RightOf, s->weights);
    const int depth = right.depth, columns = right.columns, blocks = ceil_divide(columns, 16);
    const int last = min(part.x1 * TILE_PIXELS, s->batches * s->out_height * s->out_width);
    for (int at = part.x0 * TILE_PIXELS; at < last; ++at) {
        const int b = at / blocks, c = at % blocks * 16, count = min(16, columns - c);
        global const T *matrix = src + (size_t)b * depth * columns;
        global float16 *packed = (global float16 *)dst + (size_t)at * depth;
        if (right.transposed)
            pack_rows(matrix + (size_t)c * depth, packed, depth, count);
        else
            for (int d = 0; d < depth; ++d)
                packed[d] = load_lanes(matrix + (size_t)d * columns, c, count);
    }
}

// TILE_PIXELS rows, or that row alone if row_step is 0, by `vectors` (1 or 2, a constant) of 16 columns; rows from `own` on are stored,
// `count` columns of them.
static inline __attribute__((always_inline)) void multiply_tile(global const T *x, int row_step, int depth, global const float16 *w,
                                                                global T *y, int own, int columns, int count, int vectors)
{
    if (row_step) // what the next columns are stored to
        PIXELS {
            PREFETCH(y + p * columns + 16 * vectors);
            PREFETCH(y + p * columns + 16 * vectors + 16);
        }
    float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
    PIXELS sum0[p] = sum1[p] = (float16)0.0f;
    for (int d = 0; d < depth; ++d) {
        const float16 w0 = w[d], w1 = w[(vectors > 1 ? depth : 0) + d];
        PIXELS {
            const float16 value = (float16)LOAD(x, p * row_step + d);
            sum0[p] = fma(value, w0, sum0[p]);
            if (vectors > 1)
                sum1[p] = fma(value, w1, sum1[p]);
        }
    }
    if (row_step && own == 0 && count >= 16 * vectors) {
        PIXELS {
            STORE16(y, p * columns, sum0[p]);
            if (vectors > 1)
                STORE16(y, p * columns + 16, sum1[p]);
        }
        return;
    }
    const int rows = row_step ? TILE_PIXELS : 1;
    float16 some0[TILE_PIXELS], some1[TILE_PIXELS]; // copies, for their index is no constant
    PIXELS some0[p] = sum0[p];
    PIXELS some1[p] = sum1[p];
    for (int p = own; p < rows; ++p) {
        store_lanes(y, p * columns, some0[p], min(count, 16));
        if (vectors > 1)
            store_lanes(y, p * columns + 16, some1[p], count - 16);
    }
}

// Rows and results of some tiles stay in the second cache, so that lines of results are whole before they leave it, rows are read once, and
// an epilogue and a SOFTMAX find their own.
#define GROUP_ELEMENTS 65536

static void multiply(const Step *s, global const Step *steps, Part part, global const T *src, global T *dst, global const float *packed,
                     global uchar *const *buffers, global const uchar *constants)
{
    const int rows = s->out_width, depth = s->depth_in, columns = s->depth_out, blocks = ceil_divide(columns, 16);
    const int tiles = ceil_divide(rows, TILE_PIXELS), group = max(1, GROUP_ELEMENTS / (TILE_PIXELS * (depth + columns)));
    for (int tile = part.x0; tile < part.x1;) {
        const int b = tile / tiles, end = min(min((b + 1) * tiles, tile + group), part.x1);
        global const T *matrix = src + (size_t)b * rows * depth;
        global T *product = dst + (size_t)b * rows * columns;
        for (int block = 0; block < blocks; block += TWO_AT_MOST) {
            global const float16 *w = (global const float16 *)packed + (size_t)(b * blocks + block) * depth;
            const int c = block * 16, count = min(16 * TWO_AT_MOST, columns - c);
            for (int t = tile - b * tiles; t < end - b * tiles; ++t) {
                const int first = min(t * TILE_PIXELS, max(0, rows - TILE_PIXELS)), row_step = rows < TILE_PIXELS ? 0 : depth;
                const int last = row_step ? first + 1 : rows, own = t * TILE_PIXELS - first;
                for (int r = first; r < last; ++r) {
                    global const T *x = matrix + (size_t)r * depth;
                    global T *y = product + (size_t)r * columns + c;
                    if (TILE_VECTORS > 1 && count > 16)
                        multiply_tile(x, row_step, depth, w, y, own, columns, count, 2);
                    else
                        multiply_tile(x, row_step, depth, w, y, own, columns, count, 1);
                }
            }
        }
        const int first = min((tile - b * tiles) * TILE_PIXELS, rows), last = min((end - b * tiles) * TILE_PIXELS, rows);
        if (s->epilogue) {
            const Step epilogue = steps[s->epilogue];
            const Part made = {part.step, b * rows + first, b * rows + last, 0, 1, 0, 0};
            elementwise(&epilogue, made, buffers, constants);
        }
        if (s->has_softmax) {
            global T *some = product + (size_t)first * columns;
            softmax_of_floats(s->low, some, some, columns, last - first);
        }
        tile = end;
    }
}

// A row, or two that are `depth` apart (`rows`, a constant), by a right side of which sixteen columns lie as rows of `depth`; four at a time,
// since a sum waits for itself. `count` of the columns are there.
static inline __attribute__((always_inline)) void multiply_by_rows(global const T *x, int rows, global const T *right, int depth, int count,
                                                                   float16 *results)
{
    float16 dots[2][16];
    for (int c = 0; c < 16; c += 4) {
        global const T *w0 = right + (size_t)min(c, count - 1) * depth, *w1 = right + (size_t)min(c + 1, count - 1) * depth;
        global const T *w2 = right + (size_t)min(c + 2, count - 1) * depth, *w3 = right + (size_t)min(c + 3, count - 1) * depth;
        float16 sums[2][4];
        _Pragma("unroll") for (int k = 0; k < 8; ++k) sums[k / 4][k % 4] = (float16)0.0f;
#define ADD_DOTS(LOAD_SOME)                                      \
    {                                                                \
        const float16 c0 = LOAD_SOME(w0), c1 = LOAD_SOME(w1);        \
        const float16 c2 = LOAD_SOME(w2), c3 = LOAD_SOME(w3);        \
        _Pragma("unroll") for (int r = 0; r < rows; ++r)             \
        {                                                            \
            const float16 value = LOAD_SOME(x + r * depth);          \
            sums[r][0] = fma(value, c0, sums[r][0]);                 \
            sums[r][1] = fma(value, c1, sums[r][1]);                 \
            sums[r][2] = fma(value, c2, sums[r][2]);                 \
            sums[r][3] = fma(value, c3, sums[r][3]);                 \
        }                                                            \
    }
#define LOAD_ALL(from) LOAD16(from, d)
#define LOAD_REST(from) load_lanes(from, d, depth - d)
        int d = 0;
        for (; d + 16 <= depth; d += 16)
            ADD_DOTS(LOAD_ALL)
        if (d < depth)
            ADD_DOTS(LOAD_REST)
        _Pragma("unroll") for (int k = 0; k < 4; ++k)
        {
            dots[0][c + k] = sums[0][k];
            if (rows > 1)
                dots[1][c + k] = sums[1][k];
        }
    }
    results[0] = sums_of_vectors(dots[0]);
    if (rows > 1)
        results[1] = sums_of_vectors(dots[1]);
}

// Columns c to c + 16 * vectors - 1 of a row, or of two, by a right side whose rows are columns; rows and vectors are constants.
static inline __attribute__((always_inline)) void multiply_by_columns(global const T *x, int rows, global const T *right, int depth,
                                                                      int columns, int c, int vectors, float16 (*sums)[4])
{
    _Pragma("unroll") for (int k = 0; k < 8; ++k) sums[k / 4][k % 4] = (float16)0.0f;
    for (int d = 0; d < depth; ++d, right += columns)
        _Pragma("unroll") for (int k = 0; k < vectors; ++k)
        {
            const float16 w = LOAD16(right, c + 16 * k);
            _Pragma("unroll") for (int r = 0; r < rows; ++r)
                sums[r][k] = fma((float16)LOAD(x, r * depth + d), w, sums[r][k]);
        }
}

// Columns first to last - 1 of a row, or of two.
static inline __attribute__((always_inline)) void multiply_some(const RightOf *of, global const T *x, int rows, global const T *right,
                                                                global T *y, int first, int last)
{
    const int depth = of->depth, columns = of->columns;
    float16 sums[2][4], results[2];
    int c = first;
    for (; !of->transposed && c + 64 <= last; c += 64) {
        multiply_by_columns(x, rows, right, depth, columns, c, 4, sums);
        _Pragma("unroll") for (int k = 0; k < 4 * rows; ++k)
            STORE16(y, k / 4 * columns + c + k % 4 * 16, sums[k / 4][k % 4]);
    }
    for (; c < last; c += 16) {
        const int count = min(16, last - c);
        if (of->transposed) {
            multiply_by_rows(x, rows, right + (size_t)c * depth, depth, count, results);
        } else if (count == 16) {
            multiply_by_columns(x, rows, right, depth, columns, c, 1, sums);
            results[0] = sums[0][0];
            results[1] = sums[1][0];
        } else {
            results[0] = results[1] = (float16)0.0f;
            for (int d = 0; d < depth; ++d) {
                const float16 w = load_lanes(right + (size_t)d * columns, c, count);
                _Pragma("unroll") for (int r = 0; r < rows; ++r)
                    results[r] = fma((float16)LOAD(x, r * depth + d), w, results[r]);
            }
        }
        store_lanes(y, c, results[0], count);
        if (rows > 1)
            store_lanes(y, columns + c, results[1], count);
    }
}

static void multiply_few(const Step *s, global const Step *steps, Part part, global const T *src, global T *dst, global const T *rhs,
                         global uchar *const *buffers, global const uchar *constants)
{
    const RightOf right = *CONSTANT_AT(RightOf, s->weights);
    const int rows = s->out_width, depth = right.depth, columns = right.columns;
    const int first = part.y0 * s->unit_channels, last = min(part.y1 * s->unit_channels, columns);
    for (int b = part.x0; b < part.x1; ++b) {
        global const T *matrix = rhs + (size_t)b * depth * columns, *x = src + (size_t)b * rows * depth;
        global T *y = dst + (size_t)b * rows * columns;
        int r = 0;
        for (; r + 2 <= rows; r += 2)
            multiply_some(&right, x + (size_t)r * depth, 2, matrix, y + (size_t)r * columns, first, last);
        if (r < rows)
            multiply_some(&right, x + (size_t)r * depth, 1, matrix, y + (size_t)r * columns, first, last);
    }
    if (s->epilogue) {
        const Step epilogue = steps[s->epilogue];
        elementwise(&epilogue, part, buffers, constants);
    }
    if (s->has_softmax) {
        global T *some = dst + (size_t)part.x0 * rows * columns;
        softmax_of_floats(s->low, some, some, columns, (part.x1 - part.x0) * rows);
    }
}

// SPDX-License-Identifier: Apache-2.0
// convolve_bytes.h: convolve.h for bytes, by the instructions of dot4.h, or with DOT4 4 of amx.h.
// Maths    as convolve.h, quantised. With x' = x, but x + 128 for signed inputs where DOT4 is not 4, and zero_in' alike:
//          sum (x - zero_in) * (w - zero_w) = sum x' * (w - zero_w) - zero_in' * sum (w - zero_w)
// Tensors  as convolve.h, but
//          weights char, w - zero_w cut to bytes and packed: [vectors of 16 channels][runs][ceil(length of a run / 4)][16][4], missing ones 0;
//          a run is a row of the filter where all of it is staged at once and dilation_width is 1, else the whole
//          (packing.py: pack_conv_weights_of_bytes). With DOT4_LANES 16 two vectors are a block of 32 channels in the order of bytes.h
//          (packing.py: convolution_lanes), and the last 16 or fewer are a vector in their own order, as all are with 8.
//          excess char: what cutting left, [units][2 vectors][quads of a unit][16][4], of units that have some (a quad, or a chunk of
//          amx.h), and places int [blocks + 1]: the first of a block of 32 channels; then of each unit: 65536 times its run, plus the
//          number of its first quad in it
//          bias: less zero_in' * sum (w - zero_w) (packing.py: fold_input_zero_point)
// Words    with DOT4 1 what a tile reads is spread to words beforehand, once for all its channels: of every four bytes those at even places
//          are a lane of one line, those at odd places of another WORD_LINES bytes on
// Exact    while taps * depth_in <= 65536, and sums where no step of their result is beyond 2^24 where mode is not RESCALE_BY_INTEGERS

// The products of what is there at once: of the only run, or run by run. The first has no loop around it, so that compilers keep more in
// registers.
#define EACH_RUN(products)                                                                           \
    if (runs == 1) {                                                                                 \
        products                                                                                     \
    } else {                                                                                         \
        for (int run = 0; run < runs; ++run) {                                                       \
            products                                                                                 \
            run_w0 += length;                                                                        \
            run_w1 += length;                                                                        \
            run_x += run_step;                                                                       \
        }                                                                                            \
    }

#if T_IS_SIGNED
#define multiply_tiles multiply_signed_tiles
#else
#define multiply_tiles multiply_unsigned_tiles
#endif

// How a filter is cut into runs.
typedef struct {
    int depth, by_rows, runs, run_quads;
} Filter;

static inline Filter filter_of(const Step *s)
{
    const int depth = s->filter_height * s->filter_width * s->depth_in;
    const int by_rows = s->dilation_width == 1 && s->filter_height * ceil_divide(s->filter_width * s->depth_in, 4) * 4 <= DEPTH_CHUNK;
    const int runs = by_rows ? s->filter_height : 1;
    const Filter filter = {depth, by_rows, runs, ceil_divide(depth / runs, 4)};
    return filter;
}

// Where the window of a tile's first pixel begins, if those of all its pixels are read where they lie: in one row, inside the image, and not
// so near to the tensor's end that the last four bytes of a run reach beyond it; else -1.
static inline int windows_in_place(const InputView *v, int first_pixel, int rows)
{
    const int row = first_pixel / v->out_width, ox = first_pixel - row * v->out_width, b = row / v->out_height;
    const int y = (row - b * v->out_height) * v->stride_height - v->padding_top, x = ox * v->stride_width - v->padding_left;
    const int bottom = y + (v->filter_height - 1) * v->dilation_height;
    const int right = x + (TILE_PIXELS - 1) * v->stride_width + v->filter_width;
    const int fits = rows == TILE_PIXELS && ox + TILE_PIXELS <= v->out_width && y >= 0 && bottom < v->height && x >= 0 && right <= v->width;
    const int end = nhwc_offset(b, bottom, right, v->height, v->width, v->depth);
    return fits && end <= v->elements - v->gap ? nhwc_offset(b, y, x, v->height, v->width, v->depth) : -1;
}

// What a tile reads: x, the first byte of its first pixel; step, bytes to the next pixel's; run_step, to the next run's.
typedef struct {
    global const uchar *x;
    long step, run_step;
    int staged; // else where the input lies
} Windows;

// CPUs have one address space.
static inline Windows windows_in_stage(const uchar *stage, long step, long run_step)
{
    const Windows copied = {(global const uchar *)(size_t)stage, step, run_step, 1};
    return copied;
}

static INLINED Windows windows_of_tile(const Step *s, const InputView *view, const Filter *filter, global const T *src, const uchar *stage,
                                       int first_pixel, int rows, int in_place)
{
    const int alone = DOT4 == 4 && in_place && s->batches * s->out_height * s->out_width == 1; // then every pixel of the tile is that one
    const int window = in_place || !filter->by_rows ? -1 : windows_in_place(view, first_pixel, rows);
    if (!alone && (!in_place || rows < TILE_PIXELS) && window < 0)
        return windows_in_stage(stage, STAGE_WIDTH, 4 * filter->run_quads);
    const Windows found = {(global const uchar *)src + (window < 0 ? (long)first_pixel * filter->depth : window),
                           alone ? 0 : (long)s->stride_width * s->depth_in, (long)s->dilation_height * s->width * s->depth_in, 0};
    return found;
}

// Copies what the windows of a tile read, products k0..k1 of each: rows of the input if all are in one row of the picture, else window by
// window, 4 * quads bytes for each.
static INLINED Windows stage_windows(uchar *stage, global const T *src, const InputView *v, const Filter *filter, int first_pixel, int rows,
                                     int k0, int k1, int quads)
{
#if DOT4 != 1 // where `stage` is for words, too
    const int row = first_pixel / v->out_width, ox = first_pixel - row * v->out_width, b = row / v->out_height;
    if (filter->by_rows && rows == TILE_PIXELS && ox + TILE_PIXELS <= v->out_width && v->stride_width <= v->filter_width) {
        const int columns = (TILE_PIXELS - 1) * v->stride_width + v->filter_width, pitch = columns * v->depth;
        stage_rows(stage, pitch, src, v, b * v->height * v->width * v->depth, (row - b * v->out_height) * v->stride_height - v->padding_top,
                   ox * v->stride_width - v->padding_left, columns);
        return windows_in_stage(stage, (long)v->stride_width * v->depth, pitch);
    }
#endif
    for (int p = rows; p < TILE_PIXELS; ++p)
        stage_padding(stage + p * STAGE_WIDTH, 4 * quads, v->zero_point);
    stage_tile(stage, STAGE_WIDTH, src, v, first_pixel, rows, k0, k1);
    return windows_in_stage(stage, STAGE_WIDTH, 4 * filter->run_quads);
}

// What is multiplied at once: quads of each run, from `first` on. is_last: they end it.
typedef struct {
    int first, length, is_last;
} Piece;

#if DOT4 == 1
#define STAGED_BYTES (2 * WORD_LINES)
#define WORD_LINES (TILE_PIXELS * STAGE_WIDTH) // from words of even bytes to those of odd ones
#define EVEN_BYTES 0x00ff00ff
#define SIGNS (int)(TO_UNSIGNED * 0x01010101u)
#define SPREAD_QUADS(Quads, type, i)                                                                  \
    {                                                                                                 \
        const type bytes = ((global const Quads *)(from + 4 * (i)))->value ^ (type)SIGNS;             \
        ((Quads *)(to + 4 * (i)))->value = bytes & (type)EVEN_BYTES;                                  \
        ((Quads *)(to + WORD_LINES + 4 * (i)))->value = bytes >> (type)8 & (type)EVEN_BYTES;          \
    }

// Up to 28 bytes too much are read, though none from `end` on, and written.
static INLINED void spread_run(uchar *to, global const uchar *from, int quads, global const uchar *end)
{
    int i = 0;
    for (; i + 8 <= quads; i += 8)
        SPREAD_QUADS(UnalignedInts, int8, i)
    if (i < quads && end - from >= 4 * i + 32)
        SPREAD_QUADS(UnalignedInts, int8, i)
    else
        for (; i < quads; ++i)
            SPREAD_QUADS(UnalignedInt, int, i)
}

// Spreads the bytes that the pixels of a tile read to words: of a piece of each run, at most DEPTH_CHUNK bytes a pixel. Staged bytes, whose
// runs lie one behind the other, become words where they are; what is too much is overwritten by the next run, or lies behind the last.
static INLINED Windows spread_words(uchar *stage, const Windows *bytes, int runs, Piece piece, global const uchar *end)
{
    const int length = piece.length;
    Windows words = {(global const uchar *)(size_t)stage, bytes->staged ? STAGE_WIDTH : 4 * runs * length, 4 * length, 1};
    if (bytes->staged)
        PIXELS spread_run(stage + p * STAGE_WIDTH, words.x + p * STAGE_WIDTH, runs * length, words.x + WORD_LINES);
    else if (runs == 1 && bytes->step == words.step) // pixels side by side
        spread_run(stage, bytes->x, TILE_PIXELS * length, end);
    else
        for (int p = 0; p < TILE_PIXELS; ++p)
            for (int run = 0; run < runs; ++run)
                spread_run(stage + p * words.step + run * 4 * length, bytes->x + p * bytes->step + run * bytes->run_step + 4 * piece.first,
                           length, end);
    return words;
}
#else
#define STAGED_BYTES (TILE_PIXELS * STAGE_WIDTH)
#endif

#if DOT4 == 4
#define EXCESS_QUADS CHUNK_QUADS // a unit
#define BEGIN_SUMS(bias0, bias1) begin_tiles(bias0, bias1)
#define END_SUMS end_tiles(sum0, sum1);

static INLINED void add_products(int16 *sum0, int16 *sum1, const Windows *windows, int runs, Piece piece, global const int16 *run_w0,
                                 global const int16 *run_w1, int vectors, const Ints *sign_bits)
{
    const long step = windows->step, run_step = windows->run_step;
    const int length = piece.length;
    global const uchar *run_x = windows->x;
    EACH_RUN(multiply_tiles(run_x, step, run_w0, run_w1, length, piece.is_last);)
}

static INLINED void add_excess(int16 *sum0, int16 *sum1, const Windows *windows, Piece piece, global const int16 *weights,
                               global const int *places, int units, int vector, const Ints *sign_bits)
{
    for (int i = 0; i < units; ++i, weights += 2 * CHUNK_QUADS) {
        const int first = (places[i] & 0xffff) - piece.first, some = min(CHUNK_QUADS, piece.length - first);
        multiply_tiles(windows->x - 4 * piece.first + quad_offset(places[i], windows->run_step), windows->step, weights, weights + CHUNK_QUADS,
                       some, piece.is_last && first + some == piece.length);
    }
}
#else
#define EXCESS_QUADS 1
#define BEGIN_SUMS(bias0, bias1)                                                                     \
    PIXELS sum0[p] = *(bias0);                                                                       \
    PIXELS sum1[p] = *(bias1);
#define END_SUMS

// One quad after the other: sums of 16 channels, or of 32.
#if DOT4 == 1
#define ADD_WORDS(sum, offset, w0, w1)                                                               \
    {                                                                                                \
        const Ints first = w0, second = w1;                                                          \
        PIXELS {                                                                                     \
            const Ints words = (Ints)(((global const UnalignedInt *)(at[p] + (offset)))->value);     \
            sum[p].lo = add_dot2(sum[p].lo, words, first);                                           \
            sum[p].hi = add_dot2(sum[p].hi, words, second);                                          \
        }                                                                                            \
    }
// The weights are read again for odd bytes, as there is no register to keep them in.
#define ADD_QUAD16(sum, offset, w)                                                                   \
    {                                                                                                \
        global const int16 *weights16 = w;                                                           \
        ADD_WORDS(sum, offset, even_words(weights16->lo), even_words(weights16->hi))                 \
        APART(weights16);                                                                            \
        ADD_WORDS(sum, (offset) + WORD_LINES, odd_words(weights16->lo), odd_words(weights16->hi))    \
    }
#else
#define ADD_QUAD16(sum, offset, w)                                                                   \
    {                                                                                                \
        const int16 weights16 = *(w);                                                                \
        PIXELS sum[p] = dot4_16(sum[p], spread4_16(at[p] + (offset), sign_bits), weights16);         \
    }
#endif
// Where each pixel of a tile reads, `step` bytes apart.
#define POINT_AT(first)                                                                              \
    global const uchar *at[TILE_PIXELS];                                                             \
    PIXELS {                                                                                         \
        at[p] = (first) + p * step;                                                                  \
        APART(at[p]);                                                                                \
    }
#define ADD_PRODUCTS16                                                                               \
    POINT_AT(run_x)                                                                                  \
    for (int q = 0; q < length; ++q)                                                                 \
        ADD_QUAD16(sum0, 4 * q, run_w0 + q)
#define ADD_PRODUCTS32                                                                               \
    for (int q = 0; q < length; ++q) {                                                               \
        const int16 x0 = run_w0[q], x1 = run_w1[q];                                                  \
        PIXELS {                                                                                     \
            const int16 value = spread4_16(run_x + p * step + 4 * q, sign_bits);                    \
            sum0[p] = dot4_16(sum0[p], value, x0);                                                   \
            sum1[p] = dot4_16(sum1[p], value, x1);                                                   \
        }                                                                                            \
    }

static INLINED void add_products(int16 *sum0, int16 *sum1, const Windows *windows, int runs, Piece piece, global const int16 *run_w0,
                                 global const int16 *run_w1, int vectors, const Ints *sign_bits)
{
    const long step = windows->step, run_step = windows->run_step;
    const int length = piece.length;
    global const uchar *run_x = windows->x;
#if VECTORS == 2
    if (vectors == 2) {
        EACH_RUN(ADD_PRODUCTS32)
        return;
    }
#endif
    EACH_RUN(ADD_PRODUCTS16)
}

static INLINED void add_excess(int16 *sum0, int16 *sum1, const Windows *windows, Piece piece, global const int16 *weights,
                               global const int *places, int units, int vector, const Ints *sign_bits)
{
    const long step = windows->step, run_step = windows->run_step;
    if (units == 0)
        return;
    POINT_AT(windows->x - 4 * piece.first)
    for (int i = 0; i < units; ++i, weights += 2) {
        const long offset = quad_offset(places[i], run_step);
        ADD_QUAD16(sum0, offset, weights + vector % 2)
#if VECTORS == 2
        ADD_QUAD16(sum1, offset, weights + 1)
#endif
    }
}
#endif

#if DOT4 < 4
// The only pixel, with a window of one: weights are used once, so that all depends on how fast they come. vpdpbusd takes so long that several
// sums must be on their way.
static __attribute__((noinline)) void convolve_pixel(const Step *s, Part part, global const T *src, global T *dst,
                                                     global const T *residual, global const uchar *constants)
{
    global const int16 *weights = CONSTANT_AT(int16, s->weights), *bias = CONSTANT_AT(int16, s->bias);
    global const int *modes = CONSTANT_AT(int, s->modes);
    global const int16 *excess_weights = CONSTANT_AT(int16, s->excess);
    const int depth_out = s->depth_out, quads = s->depth_in / 4, end = min(2 * part.y1, ceil_divide(depth_out, 16));
    global const int *first_places = CONSTANT_AT(int, s->places), *places = first_places + ceil_divide(ceil_divide(depth_out, 16), 2) + 1;
    global const uchar *x = (global const uchar *)src;
    const Ints sign_bits = SIGN_BITS;
    const Scaling scaling = scaling_of(s, constants);
    const RoundingModes rounding = rounding_modes();
    round_down(&rounding);
    int vectors;
    for (int vector = 2 * part.y0; vector < end; vector += vectors) {
        vectors = min(end - vector, VECTORS);
        const int channel = 16 * vector, mode = modes[vector / 2], last_excess = first_places[vector / 2 + 1];
        global const int16 *w0 = weights + (size_t)vector * quads, *w1 = vectors == 2 ? w0 + quads : w0;
        int16 some0[4], some1[4];
        _Pragma("unroll") for (int i = 0; i < 4; ++i) some0[i] = some1[i] = (int16)0;
#define ADD_FOURTH(i, q)                                              \
    {                                                                 \
        const int16 value = spread4_16(x + 4 * (q), &sign_bits);      \
        some0[i] = dot4_16(some0[i], value, w0[q]);                   \
        if (VECTORS == 2)                                             \
            some1[i] = dot4_16(some1[i], value, w1[q]);               \
    }
        int q = 0;
        for (; q + 4 <= quads; q += 4)
            _Pragma("unroll") for (int i = 0; i < 4; ++i) ADD_FOURTH(i, q + i)
        for (; q < quads; ++q)
            ADD_FOURTH(0, q)
        for (int unit = first_places[vector / 2]; unit < last_excess; ++unit) {
            const int16 value = spread4_16(x + 4 * (places[unit] & 0xffff), &sign_bits);
            global const int16 *excess = excess_weights + 2 * unit;
            some0[0] = dot4_16(some0[0], value, excess[vector % 2]);
            if (VECTORS == 2)
                some1[0] = dot4_16(some1[0], value, excess[1]);
        }
        int16 sum0[TILE_PIXELS], sum1[TILE_PIXELS]; // of which one counts
        PIXELS sum0[p] = bias[vector] + ((some0[0] + some0[1]) + (some0[2] + some0[3]));
        PIXELS sum1[p] = bias[vector + vectors - 1] + ((some1[0] + some1[1]) + (some1[2] + some1[3]));
#if VECTORS == 2
        if (vectors == 2)
            finish32(s, dst, residual, sum0, sum1, mode, scaling_at(scaling, vector), scaling_at(scaling, vector + 1), 1, channel,
                     min(32, depth_out - channel));
        else
#endif
            finish16(s, dst, residual, sum0, mode, scaling_at(scaling, vector), 1, channel, min(16, depth_out - channel), &rounding);
    }
    round_to_nearest(&rounding);
}
#endif

static void convolve_tiles(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                           global const uchar *constants)
{
    global const int16 *weights = CONSTANT_AT(int16, s->weights), *bias = CONSTANT_AT(int16, s->bias);
    global const int *modes = CONSTANT_AT(int, s->modes);
    InputView view = input_view(s);
    const Filter filter = filter_of(s);
    const int depth_out = s->depth_out, all_vectors = ceil_divide(depth_out, 16);
    global const int16 *excess_weights = CONSTANT_AT(int16, s->excess);
    global const int *first_places = CONSTANT_AT(int, s->places), *places = first_places + ceil_divide(all_vectors, 2) + 1;
    const int depth = filter.depth, runs = filter.runs, quads = runs * filter.run_quads;
    const int in_place = view.pointwise && depth % 4 == 0;
    if (filter.by_rows)
        view.gap = 4 * filter.run_quads - depth / runs;
    int16 stage_vectors[STAGED_BYTES / 64]; // for its alignment
    uchar *const stage = (uchar *)stage_vectors;
    const int group = in_place ? max(1, GROUP_QUADS / (2 * quads)) : part.y1 - part.y0;
    const int tiles = part.x1 - part.x0, groups = ceil_divide(part.y1 - part.y0, group);
    const Ints sign_bits = SIGN_BITS;
    const Scaling scaling = scaling_of(s, constants);
    const RoundingModes rounding = rounding_modes();
    round_down(&rounding);
#if DOT4 == 4
    shape_tiles((filter.run_quads - 1) % CHUNK_QUADS + 1);
#endif

    for (int i = 0; i < groups * tiles; ++i) {
        const int y0 = part.y0 + i / tiles * group, y1 = min(y0 + group, part.y1), tile = part.x0 + i % tiles;
        const int first_pixel = tile * TILE_PIXELS;
        const int rows = min(TILE_PIXELS, s->batches * s->out_height * s->out_width - first_pixel);
        const Windows found = windows_of_tile(s, &view, &filter, src, stage, first_pixel, rows, in_place);
        const int in_pieces = found.staged | (DOT4 == 1), chunk = in_pieces && !filter.by_rows ? DEPTH_CHUNK : depth;
        const int end = min(2 * y1, all_vectors);
        Windows windows = found;
        int vectors;
        for (int vector = 2 * y0; vector < end; vector += vectors) {
            const int channel = vector * 16, offset = first_pixel * depth_out + channel, mode = modes[vector / 2];
            const int last_excess = first_places[vector / 2 + 1];
            int excess = first_places[vector / 2];
            vectors = min(end - vector, VECTORS);
            int16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
            BEGIN_SUMS(bias + vector, bias + vector + vectors - 1);
            for (int k0 = 0; k0 < depth; k0 += chunk) {
                const int count = min(chunk, depth - k0);
                const Piece piece = {k0 / 4, filter.by_rows ? filter.run_quads : ceil_divide(count, 4), k0 + count == depth};
                const int is_new = vector == 2 * y0 || !filter.by_rows && depth > DEPTH_CHUNK;
                if (found.staged && is_new)
                    windows = stage_windows(stage, src, &view, &filter, first_pixel, rows, k0, k0 + count, runs * piece.length);
#if DOT4 == 1
                if (is_new)
                    windows = spread_words(stage, &found, runs, piece, (global const uchar *)src + view.elements);
#endif
                global const int16 *w = weights + (size_t)vector * quads + piece.first;
                const int first_excess = excess;
                while (excess < last_excess && (filter.by_rows || places[excess] < piece.first + piece.length))
                    ++excess;
                add_products(sum0, sum1, &windows, runs, piece, w, vectors == 2 ? w + quads : w, vectors, &sign_bits);
                add_excess(sum0, sum1, &windows, piece, excess_weights + (size_t)2 * EXCESS_QUADS * first_excess, places + first_excess,
                           excess - first_excess, vector, &sign_bits);
            }
            END_SUMS
#if VECTORS == 2
            if (vectors == 2)
                finish32(s, dst, residual, sum0, sum1, mode, scaling_at(scaling, vector), scaling_at(scaling, vector + 1), rows, offset,
                         min(32, depth_out - channel));
            else
#endif
                finish16(s, dst, residual, sum0, mode, scaling_at(scaling, vector), rows, offset, min(16, depth_out - channel), &rounding);
        }
    }
    round_to_nearest(&rounding);
#if DOT4 == 4
    release_tiles();
#endif
}

static void convolve(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                     global const uchar *constants)
{
#if DOT4 < 4
    if (s->batches * s->out_height * s->out_width == 1 && s->depth_in % 4 == 0 && input_view(s).pointwise) {
        convolve_pixel(s, part, src, dst, residual, constants);
        return;
    }
#endif
    convolve_tiles(s, part, src, dst, residual, constants);
}

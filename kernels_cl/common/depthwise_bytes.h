// SPDX-License-Identifier: Apache-2.0
// depthwise_bytes.h: depthwise.h for bytes and filters of 3 x 3 or 5 x 5 by the instructions of dot4.h: up to four rows of a column are one operand.
// Maths    as depthwise.h, quantised. With x' = x for unsigned inputs, x + 128 for signed ones, zero_in' alike:
//          sum (x - zero_in) * (w - zero_w) = sum x' * (w - zero_w) - zero_in' * sum (w - zero_w); x' = zero_in' outside the image
// Tensors  as depthwise.h, but in blocks of DEPTHWISE_LANES, which are so many channels of a pixel, or half as many of two neighbours:
//          the rest of up to a half; or all channels of four or eight neighbours. The last block may overlap the one before. The order of
//          lanes is that of bytes.h (packing.py: depthwise_lanes)
//          weights char, packed: [blocks][columns][operands][4][DOT4_LANES][row 4], zero_w subtracted, rows beyond the filter 0; then zero_in
//          for a block; then, for blocks of which a weight is no signed byte, what is left of it (packing.py: pack_depthwise_weights_of_bytes)
//          modes: that of finish_bytes.h, and 4 times the number of the block among those with such weights, from 1 on
//          bias: less zero_in' * sum (w - zero_w) (packing.py: fold_input_zero_point)
// Defines  DEPTHWISE5: 0 | 1 (required): 1: there may be filters of 5 x 5
//          DEPTHWISE_FEW: 0 | 1 (required): 1: there may be a quarter or an eighth of a block of channels
//          DEPTHWISE_REST: 0 | 1 (required): 1: there may be weights that are no signed bytes
// Needs    filter 3 x 3 or 5 x 5, not dilated, stride_width 1 or 2, every w - zero_w in -256..254, depth of an eighth, a quarter or half of a
//          block, or at least a block
// Exact    where no step of the sums' result is beyond 2^24, else mode must be RESCALE_BY_INTEGERS
#define DEPTHWISE_LANES (4 * DOT4_LANES)
#if T_IS_SIGNED
#define FLIP 0x80808080 // four bytes of x become x'
#else
#define FLIP 0
#endif
#define QUARTERS _Pragma("unroll") for (int j = 0; j < 4; ++j)
#define GREATEST_SIZE (DEPTHWISE5 ? 5 : 3)
#define OPERANDS(size) ((size + 3) / 4) // of a column

// The rows that a row of results reads. step: elements from a column to the next, 0 for a row of zero_in.
typedef struct {
    global const T *first[GREATEST_SIZE];
    long step[GREATEST_SIZE];
    int width, outside; // columns; x' outside the image four times
} Rows;

#if DEPTHWISE_FEW
#if DOT4_LANES == 16
typedef Unaligned16 UnalignedQuarter;
typedef Unaligned8 UnalignedEighth;
typedef int2 EighthInts;
#else
typedef Unaligned8 UnalignedQuarter;
typedef UnalignedInt UnalignedEighth;
typedef int EighthInts;
#endif
#define EIGHTH_AT(p) (((global const UnalignedEighth *)(p))->value)

// Rows of a column of four or eight pixels that have all channels of a block together, from column x on; those outside are `outside`.
// A call: few columns are at a border, and code for each of them takes long to compile.
static __attribute__((noinline)) void load_border_of_few(Ints *found, Rows rows, int x, int pixels, int stride, int size)
{
    for (int i = 0; i < size; ++i) {
        EighthInts part[8];
        for (int p = 0; p < 8; ++p) {
            const int column = x + p * pixels / 8 * stride, is_inside = inside(column, rows.width);
            global const T *at = rows.first[i] + (is_inside ? column * rows.step[i] : 0) + p % (8 / pixels) * (DEPTHWISE_LANES / 8);
            part[p] = is_inside ? EIGHTH_AT(at) ^ (EighthInts)FLIP : (EighthInts)rows.outside;
        }
        found[i] = *(const Ints *)part;
    }
}
#endif

// Bytes of one pixel or several, `apart` elements from each other.
static INLINED Ints load_pixels(global const T *at, long apart, const int pixels, const int stride)
{
    if (pixels == 2)
        return (Ints)(LOAD_HALF(at), LOAD_HALF(at + apart));
#if DEPTHWISE_FEW
#define QUARTER(k) (((global const UnalignedQuarter *)(at + (k) * apart))->value)
#define EIGHTH(k) EIGHTH_AT(at + (k) * apart)
    if (pixels == 4 && stride > 1)
        return (Ints)(QUARTER(0), QUARTER(1), QUARTER(2), QUARTER(3));
    if (pixels == 8 && stride > 1)
        return (Ints)(EIGHTH(0), EIGHTH(1), EIGHTH(2), EIGHTH(3), EIGHTH(4), EIGHTH(5), EIGHTH(6), EIGHTH(7));
#endif
    return LOAD_INTS(at); // side by side; a row of zero_in is as long
}

// Rows of a column on top of each other, four bytes a lane, of one pixel or several `stride` apart, which begin at column x.
static INLINED void stack_column(Ints *column, const Rows *rows, int x, const int pixels, const int stride, const int size)
{
    Ints row[GREATEST_SIZE];
    const HalfInts flip = (HalfInts)FLIP;
    if (x >= 0 && x + (pixels - 1) * stride < rows->width) {
        _Pragma("unroll") for (int i = 0; i < size; ++i) {
            global const T *at = rows->first[i] + x * rows->step[i];
            row[i] = load_pixels(at, stride * rows->step[i], pixels, stride) ^ (Ints)(flip, flip);
        }
    } else {
        const HalfInts outside = (HalfInts)rows->outside;
#if DEPTHWISE_FEW
        Ints found[GREATEST_SIZE]; // not `row`: arrays passed on by address do not stay in registers
        if (pixels > 2)
            load_border_of_few(found, *rows, x, pixels, stride, size);
#endif
        _Pragma("unroll") for (int i = 0; i < size; ++i) {
            row[i] = (Ints)rows->outside;
            if (pixels == 2) {
                global const T *at = rows->first[i] + x * rows->step[i];
                const HalfInts left = inside(x, rows->width) ? LOAD_HALF(at) ^ flip : outside;
                const HalfInts right = inside(x + stride, rows->width) ? LOAD_HALF(at + stride * rows->step[i]) ^ flip : outside;
                row[i] = (Ints)(left, right);
            }
#if DEPTHWISE_FEW
            if (pixels > 2)
                row[i] = found[i];
#endif
        }
    }
    // Rows beyond the filter are any: their weights are 0.
    const Ints last = row[min(3, size - 1)];
    const Ints low = low_bytes(row[0], row[1]), low_end = low_bytes(row[2], last);
    const Ints high = high_bytes(row[0], row[1]), high_end = high_bytes(row[2], last);
    column[0] = low_words(low, low_end);
    column[1] = high_words(low, low_end);
    column[2] = low_words(high, high_end);
    column[3] = high_words(high, high_end);
#if DEPTHWISE5
    if (size == 5) {
        const Ints fifth_low = low_bytes(row[4], row[4]), fifth_high = high_bytes(row[4], row[4]);
        column[4] = low_words(fifth_low, fifth_low);
        column[5] = high_words(fifth_low, fifth_low);
        column[6] = low_words(fifth_high, fifth_high);
        column[7] = high_words(fifth_high, fifth_high);
    }
#endif
}

// Of a block.
typedef struct {
    global const Ints *weights, *rest, *bias; // rest: of the weights, 0 if there is none
    Scaling scaling;
    int mode, zero, least, greatest; // the last three as words_of, bytes_of make them
} Lanes;

static INLINED Ints finish_lanes(const Step *s, const Lanes *l, const Ints *sum)
{
    global const Floats *scale = (global const Floats *)l->scaling.scale, *offset = (global const Floats *)l->scaling.offset;
    Ints value[4];
    if (l->mode == RESCALE_BY_FLOATS) {
        QUARTERS value[j] = cut(scale_sum(sum[j], scale[j], offset[j]));
    } else if (l->mode == RESCALE_CENTRED) {
        QUARTERS value[j] = cut(scale_centred(sum[j], scale[j], offset[j]));
    } else if (l->mode == RESCALE_PRECISELY) {
        global const Floats *rest = (global const Floats *)l->scaling.rest;
        QUARTERS value[j] = cut(scale_precisely(sum[j], scale[j], rest[j], offset[j]));
    } else {
        int16 some[DEPTHWISE_LANES / 16]; // a copy: arrays passed on by address do not stay in registers
        QUARTERS ((Ints *)some)[j] = sum[j];
        requantize_by_integers(s, some, DEPTHWISE_LANES / 16, 1, l->scaling.multiplier, l->scaling.shift, l->scaling.rounding);
        QUARTERS value[j] = ((Ints *)some)[j];
    }
    const Ints low = add_words(words_of_ints(value[0], value[1]), (Ints)l->zero);
    const Ints high = add_words(words_of_ints(value[2], value[3]), (Ints)l->zero);
    return greatest_bytes(least_bytes(bytes_of_words(low, high), (Ints)l->greatest), (Ints)l->least);
}

static INLINED void store_pixels(global T *dst, Ints bytes, const int pixels, int depth, int left)
{
    if (pixels == 1 || (pixels > 2 && left >= pixels)) {
        STORE_INTS(dst, bytes);
    } else if (pixels > 2) {
        T some[DEPTHWISE_LANES];
        *(Ints *)some = bytes;
        for (int i = 0; i < left * depth; ++i)
            dst[i] = some[i];
    } else {
        STORE_HALF(dst, bytes.lo);
        if (left > 1)
            STORE_HALF(dst + depth, bytes.hi);
    }
}

// Adds the products of a column of inputs to the sums of a window whose place in them is `part`, and which begins part * step + k columns
// before. At k = 0 a window begins, and all are one place further.
static INLINED void add_to_window(const Lanes *l, const Ints *column, Ints (*sums)[4], const int part, const int k, const int step,
                                  const int size)
{
    _Pragma("unroll") for (int i = 0; i < OPERANDS(size); ++i) {
        const int at = ((part * step + k) * OPERANDS(size) + i) * 4;
        QUARTERS {
            const Ints sum = k > 0 || i > 0 ? sums[part][j] : part > 0 ? sums[part - 1][j] : l->bias[j];
            sums[part][j] = dot4(sum, column[4 * i + j], l->weights[at + j]);
        }
#if DEPTHWISE_REST
        if (l->rest)
            QUARTERS sums[part][j] = dot4(sums[part][j], column[4 * i + j], l->rest[at + j]);
#endif
    }
}

// To the sums of all windows that have begun; last: the place of the first of them.
static INLINED void add_column(const Lanes *l, const Ints *column, Ints (*sums)[4], const int last, const int k, const int step,
                              const int size)
{
#define ADD_TO_WINDOW(part)                        \
    if (part <= last && part * step + k < size)    \
        add_to_window(l, column, sums, part, k, step, size)
    // No loop: compilers would leave the sums in memory.
    ADD_TO_WINDOW(4);
    ADD_TO_WINDOW(3);
    ADD_TO_WINDOW(2);
    ADD_TO_WINDOW(1);
    ADD_TO_WINDOW(0);
}

// One row of results of a block of channels, or of a part of a block for several pixels at once. Every column of inputs is read once.
static INLINED void depthwise_row(const Step *s, const Rows *rows, const Lanes *l, global T *dst, const int pixels, const int stride,
                                  const int size)
{
#define READ_BEHIND(k)                                              \
    if ((k) < min(step, size)) {                                    \
        stack_column(column, rows, x + (k), pixels, stride, size);  \
        add_column(l, column, sums, before, k, step, size);         \
    }
    const int step = pixels * stride, before = (size - 1) / step, last = size - 1 - before * step;
    const int out_width = s->out_width, depth = s->depth_in;
    Ints sums[5][4], column[4 * OPERANDS(GREATEST_SIZE)];
    int x = -s->padding_left;
    _Pragma("unroll") for (int begun = 0; begun < before; ++begun) {
        _Pragma("unroll") for (int k = 0; k < step; ++k) {
            stack_column(column, rows, x + k, pixels, stride, size);
            add_column(l, column, sums, begun, k, step, size);
        }
        x += step;
    }
    for (int ox = 0; ox < out_width; ox += pixels) {
        _Pragma("unroll") for (int k = 0; k <= last; ++k) {
            stack_column(column, rows, x + k, pixels, stride, size);
            add_column(l, column, sums, before, k, step, size);
        }
        store_pixels(dst + (long)ox * depth, finish_lanes(s, l, sums[before]), pixels, depth, out_width - ox);
        // No loop: where there is nothing to do, compilers warn that they cannot unroll it.
        READ_BEHIND(last + 1);
        READ_BEHIND(last + 2);
        READ_BEHIND(last + 3);
        x += step;
    }
}

// Rows of results of blocks first..last - 1, all of `pixels`.
static INLINED void depthwise_blocks(const Step *s, Part part, int first, int last, global const T *src, global T *dst,
                                     global const uchar *constants, const int pixels, const int stride, const int size)
{
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height;
    const int quads = size * OPERANDS(size) * 4;
    global const Ints *weights = CONSTANT_AT(Ints, s->weights), *bias = CONSTANT_AT(Ints, s->bias);
    global const Ints *end = weights + ceil_divide(depth, DEPTHWISE_LANES) * quads;
    global const T *padding = (global const T *)end;
    const Scaling scaling = scaling_of(s, constants);
    for (int row = part.x0; row < part.x1; ++row) {
        const int b = row / out_height, y = (row - b * out_height) * s->stride_height - s->padding_top;
        for (int block = first; block < last; ++block) {
            const int channel = min(block * DEPTHWISE_LANES, depth - DEPTHWISE_LANES / pixels);
            const int mode = CONSTANT_AT(int, s->modes)[block] % 4, left = CONSTANT_AT(int, s->modes)[block] / 4;
            const Lanes lanes = {weights + block * quads, left ? end + 1 + (left - 1) * quads : 0, bias + block * 4,
                                 scaling_at(scaling, block * (DEPTHWISE_LANES / 16)), mode, mode == RESCALE_BY_INTEGERS ? 0 : words_of(s->zero_out),
                                 bytes_of(s->low), bytes_of(s->high)};
            Rows rows;
            _Pragma("unroll") for (int fy = 0; fy < size; ++fy) {
                const int in_image = inside(y + fy, height);
                rows.first[fy] = in_image ? src + (long)nhwc_offset(b, y + fy, 0, height, width, depth) + channel : padding;
                rows.step[fy] = in_image ? depth : 0;
            }
            rows.width = width;
            rows.outside = bytes_of(s->zero_in ^ TO_UNSIGNED);
            depthwise_row(s, &rows, &lanes, dst + (long)row * s->out_width * depth + channel, pixels, stride, size);
        }
    }
}

// Every form is a function of its own: one of all would take twice as long to compile.
#define FORM(pixels, stride, size) depthwise_blocks_##pixels##_##stride##_##size
#define DEFINE_FORM(pixels, stride, size)                                                                                         \
    static __attribute__((noinline)) void FORM(pixels, stride, size)(const Step *s, Part part, int first, int last,               \
                                                                     global const T *src, global T *dst, global const uchar *constants) \
    {                                                                                                                             \
        depthwise_blocks(s, part, first, last, src, dst, constants, pixels, stride, size);                                        \
    }
#define DO_IF_FORM(pixels_, stride, size)                                                                                         \
    if (pixels == pixels_ && s->stride_width == stride && s->filter_height == size)                                               \
        FORM(pixels_, stride, size)(s, part, first, last, src, dst, constants);
#define FOR_STRIDES(DO, pixels, size) DO(pixels, 1, size) DO(pixels, 2, size)
#define FOR_PIXELS(DO, size) FOR_STRIDES(DO, 1, size) FOR_STRIDES(DO, 2, size)
#define FOR_FEW(DO, size) FOR_STRIDES(DO, 4, size) FOR_STRIDES(DO, 8, size)
#if DEPTHWISE5
#define FOR_SIZES(DO, FOR) FOR(DO, 3) FOR(DO, 5)
#else
#define FOR_SIZES(DO, FOR) FOR(DO, 3)
#endif
#if DEPTHWISE_FEW
#define FOR_FORMS(DO) FOR_SIZES(DO, FOR_PIXELS) FOR_SIZES(DO, FOR_FEW)
#else
#define FOR_FORMS(DO) FOR_SIZES(DO, FOR_PIXELS)
#endif
FOR_FORMS(DEFINE_FORM)

static inline void depthwise_form(const Step *s, Part part, int first, int last, int pixels, global const T *src, global T *dst,
                                  global const uchar *constants)
{
    FOR_FORMS(DO_IF_FORM)
}

static void depthwise_bytes(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const int depth = s->depth_in, rest = depth % DEPTHWISE_LANES;
    const int full = rest > DEPTHWISE_LANES / 2 ? part.y1 : min(part.y1, depth / DEPTHWISE_LANES); // blocks of a pixel each
    const RoundingModes modes = rounding_modes();
    round_down(&modes);
    if (depth < DEPTHWISE_LANES) {
        depthwise_form(s, part, part.y0, part.y1, DEPTHWISE_LANES / depth, src, dst, constants);
    } else {
        depthwise_form(s, part, part.y0, full, 1, src, dst, constants);
        depthwise_form(s, part, max(part.y0, full), part.y1, 2, src, dst, constants);
    }
    round_to_nearest(&modes);
}

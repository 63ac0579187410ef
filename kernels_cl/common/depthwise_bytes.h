// SPDX-License-Identifier: Apache-2.0
// depthwise_bytes.h: depthwise.h for bytes and filters of 3 x 3 by the instructions of dot4.h: the three rows of a column are one operand.
// Maths    as depthwise.h, quantised. With x' = x for unsigned inputs, x + 128 for signed ones, zero_in' alike:
//          sum (x - zero_in) * (w - zero_w) = sum x' * (w - zero_w) - zero_in' * sum (w - zero_w); x' = zero_in' outside the image
// Tensors  as depthwise.h, but in blocks of DEPTHWISE_LANES, which are so many channels of a pixel, or half as many of two neighbours:
//          the rest of up to a half. The last block may overlap the one before. The order of lanes is that of bytes.h (packing.py:
//          depthwise_lanes)
//          weights char, packed: [blocks][column 3][4][DOT4_LANES][row 4], zero_w subtracted, the fourth row 0; then zero_in for a block;
//          then, for blocks of which a weight is no signed byte, what is left of it (packing.py: pack_depthwise_weights_of_bytes)
//          modes: that of finish_bytes.h, and 4 times the number of the block among those with such weights, from 1 on
//          bias: less zero_in' * sum (w - zero_w) (packing.py: fold_input_zero_point)
// Needs    filter 3 x 3, not dilated, stride_width 1 or 2, depth of half a block or at least a block, every w - zero_w in -255..254
// Exact    where sums are at most 2^24 in magnitude, else mode must be BY_INTEGERS
#define DEPTHWISE_LANES (4 * DOT4_LANES)
#define ROWS _Pragma("unroll") for (int i = 0; i < 3; ++i)
#define QUARTERS _Pragma("unroll") for (int j = 0; j < 4; ++j)

// The rows that a row of results reads. step: elements from a column to the next, 0 for a row of zero_in.
typedef struct {
    global const T *first[3];
    long step[3];
    int width, outside; // columns; x' outside the image four times
} Rows;

// Rows of a column on top of each other, four bytes a lane, of one pixel or two `stride` apart, which begin at column x.
static INLINED void stack_column(Ints *column, const Rows *rows, int x, const int pixels, const int stride)
{
    Ints row[3];
#if T_IS_SIGNED
    const HalfInts flip = (HalfInts)0x80808080;
#else
    const HalfInts flip = (HalfInts)0;
#endif
    if (x >= 0 && x + (pixels - 1) * stride < rows->width) {
        ROWS {
            global const T *at = rows->first[i] + x * rows->step[i];
            row[i] = (pixels == 1 ? LOAD_INTS(at) : (Ints)(LOAD_HALF(at), LOAD_HALF(at + stride * rows->step[i]))) ^ (Ints)(flip, flip);
        }
    } else {
        const HalfInts outside = (HalfInts)rows->outside;
        ROWS {
            row[i] = (Ints)rows->outside;
            if (pixels == 2) {
                global const T *at = rows->first[i] + x * rows->step[i];
                const HalfInts left = inside(x, rows->width) ? LOAD_HALF(at) ^ flip : outside;
                const HalfInts right = inside(x + stride, rows->width) ? LOAD_HALF(at + stride * rows->step[i]) ^ flip : outside;
                row[i] = (Ints)(left, right);
            }
        }
    }
    const Ints low = low_bytes(row[0], row[1]), low_third = low_bytes(row[2], row[2]);
    const Ints high = high_bytes(row[0], row[1]), high_third = high_bytes(row[2], row[2]);
    column[0] = low_words(low, low_third);
    column[1] = high_words(low, low_third);
    column[2] = low_words(high, high_third);
    column[3] = high_words(high, high_third);
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
    if (l->mode == BY_FLOATS) {
        QUARTERS value[j] = cut(scale_sum(sum[j], scale[j], offset[j]));
    } else if (l->mode == CENTRED) {
        QUARTERS value[j] = cut(scale_centred(sum[j], scale[j], offset[j]));
    } else {
        int16 some[DEPTHWISE_LANES / 16]; // a copy: arrays passed on by address do not stay in registers
        QUARTERS ((Ints *)some)[j] = sum[j];
        requantize_by_integers(s, some, DEPTHWISE_LANES / 16, 1, &l->scaling);
        QUARTERS value[j] = ((Ints *)some)[j];
    }
    const Ints low = add_words(words_of_ints(value[0], value[1]), (Ints)l->zero);
    const Ints high = add_words(words_of_ints(value[2], value[3]), (Ints)l->zero);
    return greatest_bytes(least_bytes(bytes_of_words(low, high), (Ints)l->greatest), (Ints)l->least);
}

static INLINED void store_pixels(global T *dst, Ints bytes, const int pixels, int depth, int left)
{
    if (pixels == 1) {
        STORE_INTS(dst, bytes);
    } else {
        STORE_HALF(dst, bytes.lo);
        if (left > 1)
            STORE_HALF(dst + depth, bytes.hi);
    }
}

#define ADD_COLUMN(to, from, k)                                                 \
    do {                                                                        \
        QUARTERS to[j] = dot4(from[j], column[j], l->weights[(k) * 4 + j]);     \
        if (l->rest)                                                            \
            QUARTERS to[j] = dot4(to[j], column[j], l->rest[(k) * 4 + j]);      \
    } while (0)

// One row of results of a block of channels, or of half a block for two pixels at once.
static INLINED void depthwise_row(const Step *s, const Rows *rows, const Lanes *l, global T *dst, const int pixels, const int stride)
{
    const int out_width = s->out_width, depth = s->depth_in, left = -s->padding_left;
    Ints column[4], sum[4], next[4], later[4];
    if (pixels * stride <= 2) {
        stack_column(column, rows, left, pixels, stride);
        ADD_COLUMN(next, l->bias, 0);
    }
    if (pixels * stride == 1) {
        stack_column(column, rows, left + 1, pixels, stride);
        ADD_COLUMN(later, l->bias, 0);
        ADD_COLUMN(next, next, 1);
    }
    for (int ox = 0; ox < out_width; ox += pixels) {
        const int x = left + ox * stride;
        if (pixels * stride == 1) {
            stack_column(column, rows, x + 2, pixels, stride);
            ADD_COLUMN(sum, next, 2);
            ADD_COLUMN(next, later, 1);
            ADD_COLUMN(later, l->bias, 0);
        } else {
            if (pixels * stride > 2) {
                stack_column(column, rows, x, pixels, stride);
                ADD_COLUMN(next, l->bias, 0);
            }
            stack_column(column, rows, x + 1, pixels, stride);
            ADD_COLUMN(sum, next, 1);
            stack_column(column, rows, x + 2, pixels, stride);
            ADD_COLUMN(sum, sum, 2);
            if (pixels * stride == 2)
                ADD_COLUMN(next, l->bias, 0);
        }
        store_pixels(dst + (long)ox * depth, finish_lanes(s, l, sum), pixels, depth, out_width - ox);
    }
}

static void depthwise3_bytes(const Step *s, Part part, global const T *src, global T *dst, global const uchar *constants)
{
    const int height = s->height, width = s->width, depth = s->depth_in, out_height = s->out_height;
    global const Ints *weights = CONSTANT_AT(Ints, s->weights), *bias = CONSTANT_AT(Ints, s->bias);
    global const Ints *end = weights + ceil_divide(depth, DEPTHWISE_LANES) * 12;
    global const T *padding = (global const T *)end;
    const Scaling scaling = scaling_of(s, constants);
    const RoundingModes modes = rounding_modes();
    round_down(&modes);
    for (int row = part.x0; row < part.x1; ++row) {
        const int b = row / out_height, y = (row - b * out_height) * s->stride_height - s->padding_top;
        for (int block = part.y0; block < part.y1; ++block) {
            const int rest = depth - block * DEPTHWISE_LANES;
            const int pixels = rest <= DEPTHWISE_LANES / 2 ? 2 : 1;
            const int channel = rest >= DEPTHWISE_LANES ? block * DEPTHWISE_LANES : depth - DEPTHWISE_LANES / pixels;
            const int mode = CONSTANT_AT(int, s->modes)[block] % 4, left = CONSTANT_AT(int, s->modes)[block] / 4;
            const Lanes lanes = {weights + block * 12, left ? end + 1 + (left - 1) * 12 : 0, bias + block * 4,
                                 scaling_at(scaling, block * (DEPTHWISE_LANES / 16)), mode, mode == BY_INTEGERS ? 0 : words_of(s->zero_out),
                                 bytes_of(s->low), bytes_of(s->high)};
            Rows rows;
            for (int fy = 0; fy < 3; ++fy) {
                const int in_image = inside(y + fy, height);
                rows.first[fy] = in_image ? src + (long)nhwc_offset(b, y + fy, 0, height, width, depth) + channel : padding;
                rows.step[fy] = in_image ? depth : 0;
            }
            rows.width = width;
            rows.outside = bytes_of(s->zero_in ^ TO_UNSIGNED);
            global T *to = dst + (long)row * s->out_width * depth + channel;
            if (pixels == 1 && s->stride_width == 1)
                depthwise_row(s, &rows, &lanes, to, 1, 1);
            else if (pixels == 1)
                depthwise_row(s, &rows, &lanes, to, 1, 2);
            else if (s->stride_width == 1)
                depthwise_row(s, &rows, &lanes, to, 2, 1);
            else
                depthwise_row(s, &rows, &lanes, to, 2, 2);
        }
    }
    round_to_nearest(&modes);
}

// SPDX-License-Identifier: Apache-2.0
// chain_step.h: a step of chain.cl as the table holds it (gpu_driver/chain/step.py: STEP_FIELDS, in the same order), and the arithmetic of its end.
// Units    kind: KIND_* of chain.cl; src, dst, residual, third: numbers of buffers
//          before: EXPANDED: the step that it does itself
//          instructions, at_once: of ELEMENTWISE, see elementwise_step.h; unit_pixels, unit_channels: what a task counts
//          epilogue: 0, or the step, ELEMENTWISE, that each task does with what it has written, in place; before has_softmax
//          half_weights: 1: the weights of a product of one pixel are halves; level_rows: see dynamic_step.h
//          has_softmax: 1: the rows of a MULTIPLY become their SOFTMAX, with low for beta
//          factor_product, factor_residual: of QUANTIZE and DEQUANTIZE, see quantize_step.h
//          tiles_at_once, multipliers: of WINOGRAD, see winograd.h; multipliers are the filters
//          *_offset, and places of weights to places in the constants: in units of 64 bytes
//          zero_*, low*, high*: quantised (but low, high float for float and half); low, high of the convolution itself if quantised (low of FILL: the value),
//          of the sum if float; rounding_mode: ROUND_TWICE; ROUND_TWICE_AT_ONCE where quant.h: multiply_and_round16 applies to all
//          channels with these roundings, ROUND_POSITIVE if low >= zero_out, too; ROUND_ONCE for FULLY_CONNECTED with such roundings
//          *_product, *_residual, *_sum: ADD_LEFT_SHIFT and the factors of ADD (addition.py)
//          scales, rests, offsets, modes: finish_bytes.h, as adds_by_floats and what belongs to it; excess, places: convolve_bytes.h
#define ROUND_TWICE 0
#define ROUND_TWICE_AT_ONCE 1
#define ROUND_ONCE 2
#define ROUND_POSITIVE 3

#if T_IS_FLOAT
#define COMPUTE_NAME float
#else
#define COMPUTE_NAME int
#endif

typedef struct {
    int kind;
    int src, src_offset, dst, dst_offset, residual, residual_offset, third, third_offset, before, epilogue;
    int weights, bias, multipliers, shifts, roundings, scales, rests, offsets, modes, excess, places;
    int batches, height, width, depth_in, out_height, out_width, depth_out;
    int filter_height, filter_width, stride_height, stride_width, dilation_height, dilation_width, padding_top, padding_left;
    int chunk, zero_in, zero_out, rounding_mode;
    COMPUTE_T low, high; // of the convolution, or of the sum if float
    int has_residual, zero_residual, left_shift;
    int multiplier_product, exponent_product, multiplier_residual, exponent_residual, multiplier_sum, exponent_sum, rounding_sum;
    int adds_by_floats;
    float factor_product, factor_residual, offset_sum;
    COMPUTE_T low_sum, high_sum;
    int tiles_at_once;
    int instructions, at_once, unit_pixels, unit_channels;
    int half_weights;
    int level_rows;
    int has_softmax;
} Step;

// What a task computes. x0..x1 - 1: `unit_pixels` each, counted over all images: tiles of TILE_PIXELS pixels, output rows of pictures
// (depthwise, expanded), or single pixels where no tile is made;
// y0..y1 - 1: blocks of 32 channels, or of 16 (depthwise). WINOGRAD: x0..x1 - 1: rows of TILE_PIXELS of its tiles.
// ahead, ahead_lines: weights that the same queue needs next, for who can fetch them meanwhile: place in units of 64 bytes, how many
typedef struct {
    int step, x0, x1, y0, y1;
    int ahead, ahead_lines;
} Part;

#define CONSTANT_AT(type, offset) ((global const type *)(constants + (size_t)(offset) * 64))

#if QUANTIZED
// Scales, offsets and clamps sums; `rounding` is used unless ROUND_TWICE: quant.h, multiply_and_round16.
// Few branches, or compilers leave them in the loops.
static inline int16 requantize16(const Step *s, int16 sum, int16 multiplier, int16 shift, int16 rounding)
{
    int16 value;
    if (s->rounding_mode == ROUND_TWICE)
        value = multiply_by_quantized_multiplier16(sum, multiplier, shift) + s->zero_out;
    else if (s->rounding_mode == ROUND_TWICE_AT_ONCE)
        value = multiply_and_round16(sum, multiplier, -shift, rounding);
    else
        value = multiply_and_round_down16(sum, multiplier, -shift, rounding, s->rounding_mode == ROUND_ONCE ? 0 : 1L << 30);
    return activate_int16(value, s->low, s->high);
}

// A centred addend on the scale of the sum: half of it where the multiplier is 0 (the larger scale of the two always is), else rescaled
// with a negative exponent.
static inline int16 rescale_addend16(int16 centred, int left_shift, int multiplier, int exponent)
{
    if (multiplier == 0)
        return centred << (left_shift - 1);
    return multiply_and_round16(centred << left_shift, (int16)multiplier, (int16)exponent, (int16)(1 << (exponent - 1)));
}

// ADD of the product's result (quantised) and a residual.
static inline __attribute__((always_inline)) int16 add_residual16(const Step *s, int16 product, int16 residual)
{
    const int16 a = rescale_addend16(product - s->zero_out, s->left_shift, s->multiplier_product, s->exponent_product);
    const int16 b = rescale_addend16(residual - s->zero_residual, s->left_shift, s->multiplier_residual, s->exponent_residual);
    const int16 sum = multiply_and_round16(a + b, (int16)s->multiplier_sum, (int16)s->exponent_sum, (int16)s->rounding_sum);
    return activate_int16(sum, s->low_sum, s->high_sum);
}
#endif

#if T_IS_HALF
typedef struct __attribute__((packed)) {
    ushort8 value;
} UnalignedBits8;
#define LOAD8(p, i) load_half8((p) + (i))
#define STORE8(p, i, v) store_half8((p) + (i), v)

static inline float8 load_half8(global const half *p)
{
    const ushort8 bits = ((global const UnalignedBits8 *)p)->value;
    return float16_of((ushort16)(bits, bits)).lo;
}

static inline void store_half8(global half *p, float8 v)
{
    ((global UnalignedBits8 *)p)->value = half16_of((float16)(v, v)).lo;
}
#else
typedef struct __attribute__((packed)) {
    JOIN(T, 8) value;
} UnalignedT8;
#define LOAD8(p, i) WIDEN(((global const UnalignedT8 *)((p) + (i)))->value, JOIN(COMPUTE_NAME, 8))
#define STORE8(p, i, v) (((global UnalignedT8 *)((p) + (i)))->value = WIDEN(v, JOIN(T, 8)))
#endif

// `count` <= 16 neighbours; the other lanes are 0.
static inline COMPUTE_T16 load_lanes(global const T *src, int offset, int count)
{
    if (count == 16)
        return LOAD16(src, offset);
    if (count == 8)
        return (COMPUTE_T16)(LOAD8(src, offset), (JOIN(COMPUTE_NAME, 8))(0));
    COMPUTE_T lanes[16];
    for (int i = 0; i < 16; ++i)
        lanes[i] = i < count ? LOAD(src, offset + i) : 0;
    return vload16(0, lanes);
}

static inline void store_lanes(global T *dst, int offset, COMPUTE_T16 value, int count)
{
    if (count == 16) {
        STORE16(dst, offset, value);
    } else if (count == 8) {
        STORE8(dst, offset, value.lo);
    } else {
        COMPUTE_T lanes[16];
        vstore16(value, 0, lanes);
        for (int i = 0; i < count; ++i)
            STORE(dst, offset + i, lanes[i]);
    }
}

// SPDX-License-Identifier: Apache-2.0
// finish_bytes.h: how sums of bytes' products become bytes, 16, 32 or four vectors of channels at once (bytes.h says in which order).
// Maths    the requantisation of quant.h and ADD, by floats where float_rounding.py found that the result is the same for every sum:
//          RESCALE_BY_FLOATS: sum * scale + offset, rounded towards zero and cut to an integer; RESCALE_CENTRED: the same with the offset of the sum's
//          sign; RESCALE_PRECISELY: that with two floats for a factor, sum * scale + (sum * rest + offset); then zero_out is added.
//          RESCALE_BY_INTEGERS elsewhere.
// Defines  common/chain_step.h, common/bytes.h (required, before inclusion)
#define RESCALE_BY_INTEGERS 0
#define RESCALE_BY_FLOATS 1
#define RESCALE_CENTRED 2
#define RESCALE_PRECISELY 3

// Of one vector of sums.
typedef struct {
    global const int16 *multiplier, *shift, *rounding;
    global const float16 *scale, *rest, *offset;
} Scaling;

static inline Scaling scaling_of(const Step *s, global const uchar *constants)
{
    const Scaling first = {CONSTANT_AT(int16, s->multipliers), CONSTANT_AT(int16, s->shifts), CONSTANT_AT(int16, s->roundings),
                           CONSTANT_AT(float16, s->scales), CONSTANT_AT(float16, s->rests), CONSTANT_AT(float16, s->offsets)};
    return first;
}

static inline Scaling scaling_at(Scaling first, int vector)
{
    const Scaling scaling = {first.multiplier + vector, first.shift + vector, first.rounding + vector, first.scale + vector,
                             first.rest + vector, first.offset + vector};
    return scaling;
}

// A value as two words, or four bytes.
static inline int words_of(int value)
{
    return (value & 0xffff) * 0x10001;
}

static inline int bytes_of(int value)
{
    return (value & 0xff) * 0x1010101;
}

static inline Floats with_sign_of(Floats x, Floats y) // y is not negative
{
    return JOIN(as_float, DOT4_LANES)(JOIN(as_int, DOT4_LANES)(y) | (JOIN(as_int, DOT4_LANES)(x) & INT_MIN));
}

// Between round_down and round_to_nearest.
static inline Floats scale_sum(Ints sum, Floats scale, Floats offset)
{
    return multiply_add_down(WIDEN(sum, Floats), scale, offset);
}

static inline Floats scale_centred(Ints sum, Floats scale, Floats offset)
{
    const Floats x = WIDEN(sum, Floats);
    return multiply_add_down(x, scale, with_sign_of(x, offset));
}

static inline Floats scale_precisely(Ints sum, Floats scale, Floats rest, Floats offset)
{
    const Floats x = WIDEN(sum, Floats);
    return multiply_add_down(x, scale, multiply_add_down(x, rest, with_sign_of(x, offset)));
}

// A call: rare, so that what calls it keeps its registers for what is not. step: 1 if the sums are neighbours, 0 if they share a scaling.
static __attribute__((noinline)) void requantize_by_integers(const Step *s, int16 *sums, int count, int step, global const int16 *multiplier,
                                                             global const int16 *shift, global const int16 *rounding)
{
    for (int i = 0; i < count; ++i)
        sums[i] = requantize16(s, sums[i], multiplier[i * step], shift[i * step], rounding[i * step]);
}

static inline float16 add_by_floats(const Step *s, float16 product, int16 residual)
{
    return fma(product, (float16)s->factor_product, fma(WIDEN(residual, float16), (float16)s->factor_residual, (float16)s->offset_sum));
}

#if DOT4_LANES == 16
#define scale_sum_16 scale_sum
#define scale_centred_16 scale_centred
#define scale_precisely_16 scale_precisely
#else
static inline float16 scale_sum_16(int16 sum, float16 scale, float16 offset)
{
    return (float16)(scale_sum(sum.lo, scale.lo, offset.lo), scale_sum(sum.hi, scale.hi, offset.hi));
}

static inline float16 scale_centred_16(int16 sum, float16 scale, float16 offset)
{
    return (float16)(scale_centred(sum.lo, scale.lo, offset.lo), scale_centred(sum.hi, scale.hi, offset.hi));
}

static inline float16 scale_precisely_16(int16 sum, float16 scale, float16 rest, float16 offset)
{
    return (float16)(scale_precisely(sum.lo, scale.lo, rest.lo, offset.lo), scale_precisely(sum.hi, scale.hi, rest.hi, offset.hi));
}
#endif

// Scales 16 channels of `rows` pixels of a tile: what they are before zero_out is added and they are cut to integers. Between round_down and
// round_to_nearest.
static INLINED void scale_tile(const Step *s, float16 *scaled, const int16 *sum, int mode, Scaling scaling, int rows)
{
    if (mode == RESCALE_BY_INTEGERS) {
        int16 some[TILE_PIXELS]; // a copy: arrays passed on by address do not stay in registers
        PIXELS some[p] = sum[p];
        requantize_by_integers(s, some, rows, 0, scaling.multiplier, scaling.shift, scaling.rounding);
        PIXELS scaled[p] = WIDEN(some[p] - s->zero_out, float16);
        return;
    }
    const float16 scale = *scaling.scale, offset = *scaling.offset;
    if (mode == RESCALE_BY_FLOATS) {
        PIXELS scaled[p] = scale_sum_16(sum[p], scale, offset);
    } else if (mode == RESCALE_CENTRED) {
        PIXELS scaled[p] = scale_centred_16(sum[p], scale, offset);
    } else {
        const float16 rest = *scaling.rest;
        PIXELS scaled[p] = scale_precisely_16(sum[p], scale, rest, offset);
    }
}

// Stores 16 channels of each pixel of a tile.
static INLINED void store_tile16(const Step *s, global T *dst, const float16 *scaled)
{
    const int depth_out = s->depth_out, zero_out = s->zero_out;
#if DOT4_LANES == 16
    const int low = s->low, high = s->high;
    PIXELS {
        STORE16(dst, 0, activate_int16(cut(scaled[p]) + zero_out, low, high));
        dst += depth_out;
    }
#else
    const Ints zero = (Ints)words_of(zero_out), least = (Ints)bytes_of(s->low), greatest = (Ints)bytes_of(s->high);
    Ints words[TILE_PIXELS + 1];
    PIXELS words[p] = add_words(words_of_ints(cut(scaled[p].lo), cut(scaled[p].hi)), zero);
    words[TILE_PIXELS] = words[TILE_PIXELS - 1];
    _Pragma("unroll") for (int p = 0; p < TILE_PIXELS; p += 2) {
        const Ints pair = greatest_bytes(least_bytes(bytes_of_words(words[p], words[p + 1]), greatest), least).s04152637;
        STORE_HALF(dst, pair.lo);
        if (p + 1 < TILE_PIXELS)
            STORE_HALF(dst + depth_out, pair.hi);
        dst += 2 * depth_out;
    }
#endif
}

// Scales, activates and stores `count` channels, 1 to 16 in their own order, of `rows` pixels, from element `offset` of dst on. Between
// round_down and round_to_nearest.
static INLINED void finish16(const Step *s, global T *dst, global const T *residual, const int16 *sum, int mode, Scaling scaling, int rows,
                             int offset, int count, const RoundingModes *modes)
{
    const int depth_out = s->depth_out, zero_out = s->zero_out, low = s->low, high = s->high;
    const int is_common = rows == TILE_PIXELS && count == 16;
    float16 scaled[TILE_PIXELS];
    scale_tile(s, scaled, sum, mode, scaling, rows);
    if (is_common && !s->has_residual) {
        store_tile16(s, dst + offset, scaled);
        return;
    }
    if (is_common && s->adds_by_floats) {
        const float least = (float)(low - zero_out), greatest = (float)(high - zero_out);
        const int low_sum = s->low_sum, high_sum = s->high_sum;
        round_to_nearest(modes);
        PIXELS {
            const float16 sum_of_both = add_by_floats(s, activate16(cut_float_16(scaled[p]), least, greatest), LOAD16(residual, offset));
            STORE16(dst, offset, activate_int16(nearest_16(sum_of_both), low_sum, high_sum));
            offset += depth_out;
        }
        round_down(modes);
        return;
    }
    int16 some[TILE_PIXELS]; // in memory, for its index is no constant
    PIXELS some[p] = activate_int16(cut_16(scaled[p]) + zero_out, low, high);
    for (int p = 0; p < rows; ++p, offset += depth_out) {
        int16 value = some[p];
        if (s->has_residual)
            value = add_residual16(s, value, load_lanes(residual, offset, count));
        store_lanes(dst, offset, value, count);
    }
}

#if DOT4_LANES == 16
static __attribute__((noinline)) int16 add_residual_by_integers(const Step *s, int16 product, int16 residual)
{
    return words_of_ints(add_residual16(s, low_words(product, product) >> 16, low_words(residual, residual) >> 16),
                         add_residual16(s, high_words(product, product) >> 16, high_words(residual, residual) >> 16));
}

// Channels of a pixel as words, those from `count` on anything.
static inline int16 load_words(global const T *src, int count)
{
    if (count == 32)
        return widen_to_words(LOAD_HALF(src));
    T lanes[32];
    for (int i = 0; i < 32; ++i)
        lanes[i] = i < count ? src[i] : 0;
    return widen_to_words(*(const int8 *)lanes);
}

static inline void store_words(global T *dst, int16 words, int count)
{
    const int8 bytes = narrow_words(words);
    if (count == 32) {
        STORE_HALF(dst, bytes);
    } else if (count == 24) {
        ((global Unaligned16 *)dst)->value = bytes.lo;
        ((global Unaligned8 *)dst)[2].value = bytes.s45;
    } else {
        int8 lanes = bytes;
        for (int i = 0; i < count; ++i)
            dst[i] = ((const T *)&lanes)[i];
    }
}

// Activates and stores 32 channels of each pixel of a tile, two pixels at a time.
static INLINED void store_tile32(global T *dst, int depth_out, const int16 *words, int low, int high)
{
    const Ints least = (Ints)bytes_of(low), greatest = (Ints)bytes_of(high);
    _Pragma("unroll") for (int p = 0; p < TILE_PIXELS; p += 2) {
        const Ints mixed = bytes_of_words(words[p], words[min(p + 1, TILE_PIXELS - 1)]);
        const long8 pair = as_long8(greatest_bytes(least_bytes(mixed, greatest), least)).s02461357;
        STORE_HALF(dst, as_int8(pair.lo));
        if (p + 1 < TILE_PIXELS)
            STORE_HALF(dst + depth_out, as_int8(pair.hi));
        dst += 2 * depth_out;
    }
}

// Scales, activates and stores `count` channels, 17 to 32, of `rows` pixels, from element `offset` of dst on.
static INLINED void finish32(const Step *s, global T *dst, global const T *residual, const int16 *sum0, const int16 *sum1, int mode,
                             Scaling first, Scaling second, int rows, int offset, int count)
{
    const int depth_out = s->depth_out, zero_out = s->zero_out;
    const int is_common = rows == TILE_PIXELS && (count == 32 || count == 24), last = offset + (TILE_PIXELS - 1) * depth_out;
    int adds = s->has_residual, low = s->low, high = s->high;
    float16 scaled0[TILE_PIXELS], scaled1[TILE_PIXELS];
    scale_tile(s, scaled0, sum0, mode, first, rows);
    scale_tile(s, scaled1, sum1, mode, second, rows);
    int16 words[TILE_PIXELS];
    if (adds && s->adds_by_floats && is_common && last + 32 <= s->batches * s->out_height * s->out_width * depth_out) {
        const float least = (float)(low - zero_out), greatest = (float)(high - zero_out);
        global const T *x = residual + offset;
        PIXELS {
            const int16 other = widen_to_words(LOAD_HALF(x));
            const float16 product0 = activate16(cut_float(scaled0[p]), least, greatest);
            const float16 product1 = activate16(cut_float(scaled1[p]), least, greatest);
            words[p] = words_of_ints(nearest(add_by_floats(s, product0, low_words(other, other) >> 16)),
                                     nearest(add_by_floats(s, product1, high_words(other, other) >> 16)));
            x += depth_out;
        }
        adds = 0;
        low = s->low_sum;
        high = s->high_sum;
    } else {
        const int16 zero = (int16)words_of(zero_out);
        PIXELS words[p] = add_words(words_of_ints(cut(scaled0[p]), cut(scaled1[p])), zero);
    }
    if (is_common && !adds && count == 32) {
        store_tile32(dst + offset, depth_out, words, low, high);
        return;
    }
    const int16 least = (int16)words_of(low), greatest = (int16)words_of(high);
    PIXELS words[p] = greatest_words(least_words(words[p], greatest), least);
    if (is_common && !adds) {
        PIXELS store_words(dst + offset + p * depth_out, words[p], 24);
    } else {
        int16 some[TILE_PIXELS]; // a copy, for its index is no constant
        PIXELS some[p] = words[p];
        for (int p = 0; p < rows; ++p, offset += depth_out) {
            int16 value = some[p];
            if (adds)
                value = add_residual_by_integers(s, value, load_words(residual + offset, count));
            store_words(dst + offset, value, count);
        }
    }
}
#endif

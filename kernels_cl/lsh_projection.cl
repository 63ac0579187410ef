// SPDX-License-Identifier: Apache-2.0
// lsh_projection.cl: LSH_PROJECTION.
// Maths    bit[n] = sum over rows r of weight[r] * fingerprint(seed[n] as float32, then the bytes of row r) > 0,
//          fingerprints as signed 64-bit integers; dense: y[n] = bit[n]; sparse: y[h] = the bits of hash row h, the first the
//          highest, + h * offset
// Tensors  seeds of T [count * bits]; rows uchar [row_count, row_bytes]; weights of T [row_count], read only if has_weights, else
//          any buffer of T; dst int [count]
// Units    bits: seeds of one output (dense: 1); offset: 2^bits, or 0
// Defines  T: float | half (required)
// Launch   global (>= count), local (64); one work-item per output element; extra items return
// Exact    sums in pairs of floats (47 bits), so a bit may differ from one of double sums only where those all but cancel out
// Source   Fingerprint64 of FarmHash (its `na` variant), whose results are fixed for ever
#ifndef T
#error "lsh_projection.cl: define T"
#endif

#include "common/types.h"

#pragma OPENCL FP_CONTRACT OFF

#define K0 0xC3A5C85C97CB3127UL
#define K1 0xB492B66FBE98F273UL
#define K2 0x9AE16A3B2F90404FUL

// A key: four bytes of seed, then a row.
typedef struct {
    uint seed;
    global const uchar *row;
    int length;
} Key;

static inline ulong byte_at(const Key *key, int at)
{
    return at < 4 ? (key->seed >> 8 * at) & 0xff : key->row[at - 4];
}

static inline ulong half_word_at(const Key *key, int at)
{
    ulong word = 0;
    for (int i = 3; i >= 0; --i)
        word = word << 8 | byte_at(key, at + i);
    return word;
}

static inline ulong word_at(const Key *key, int at)
{
    return half_word_at(key, at) | half_word_at(key, at + 4) << 32;
}

static inline ulong rotate_right(ulong word, ulong bits)
{
    return rotate(word, 64 - bits);
}

static inline ulong mix(ulong word)
{
    return word ^ word >> 47;
}

static inline ulong combine(ulong first, ulong second, ulong factor)
{
    const ulong inner = mix((first ^ second) * factor);
    return mix((second ^ inner) * factor) * factor;
}

static inline ulong fingerprint_up_to_16(const Key *key, ulong factor)
{
    const int length = key->length;
    if (length < 8)
        return combine((ulong)length + (half_word_at(key, 0) << 3), half_word_at(key, length - 4), factor);
    const ulong head = word_at(key, 0) + K2, tail = word_at(key, length - 8);
    return combine(rotate_right(tail, 37) * factor + head, (rotate_right(head, 25) + tail) * factor, factor);
}

// Two words of the 16 bytes at either end; `first` is the first word times a constant.
static inline ulong2 ends_of(const Key *key, ulong first, ulong factor)
{
    const ulong second = word_at(key, 8), last = word_at(key, key->length - 8) * factor;
    const ulong left = rotate_right(first + second, 43) + rotate_right(last, 30) + word_at(key, key->length - 16) * K2;
    return (ulong2)(left, first + rotate_right(second + K2, 18) + last);
}

static inline ulong fingerprint_up_to_64(const Key *key, ulong factor)
{
    const ulong first = word_at(key, 0) * K2;
    const ulong2 ends = ends_of(key, first, factor);
    const ulong third = word_at(key, 16) * factor, fourth = word_at(key, 24);
    const ulong fifth = (ends.x + word_at(key, key->length - 32)) * factor;
    const ulong sixth = (combine(ends.x, ends.y, factor) + word_at(key, key->length - 24)) * factor;
    return combine(rotate_right(third + fourth, 43) + rotate_right(fifth, 30) + sixth,
                   third + rotate_right(fourth + first, 18) + fifth, factor);
}

// 32 bytes mixed into two words.
static inline ulong2 mixed_32(const Key *key, int at, ulong first, ulong second)
{
    const ulong start = first + word_at(key, at), last = word_at(key, at + 24);
    const ulong total = start + word_at(key, at + 8) + word_at(key, at + 16);
    return (ulong2)(total + last, rotate_right(second + start + last, 21) + rotate_right(total, 44) + start);
}

typedef struct {
    ulong x, y, z;
    ulong2 v, w;
} State;

// Takes in 64 bytes; all blocks but the last have weight 1 and factor K1.
static inline void advance(State *state, const Key *key, int at, ulong factor, ulong weight)
{
    const ulong x = rotate_right(state->x + state->y + state->v.x + word_at(key, at + 8), 37) * factor ^ state->w.y * weight;
    const ulong y = rotate_right(state->y + state->v.y + word_at(key, at + 48), 42) * factor + state->v.x * weight
                    + word_at(key, at + 40);
    const ulong z = rotate_right(state->z + state->w.x, 33) * factor;
    state->v = mixed_32(key, at, state->v.y * factor, x + state->w.x);
    state->w = mixed_32(key, at + 32, z + state->w.y, y + word_at(key, at + 16));
    state->x = z;
    state->y = y;
    state->z = x;
}

static inline ulong fingerprint_longer(const Key *key)
{
    const int length = key->length;
    State state;
    state.y = 81 * K1 + 113;
    state.x = 81 * K2 + word_at(key, 0);
    state.z = mix(state.y * K2 + 113) * K2;
    state.v = state.w = (ulong2)(0, 0);
    for (int at = 0; at < (length - 1) / 64 * 64; at += 64)
        advance(&state, key, at, K1, 1);
    const ulong factor = K1 + ((state.z & 0xff) << 1);
    state.w.x += (ulong)((length - 1) % 64);
    state.v.x += state.w.x;
    state.w.x += state.v.x;
    advance(&state, key, length - 64, factor, 9);
    return combine(combine(state.v.x, state.w.x, factor) + mix(state.y) * K0 + state.z,
                   combine(state.v.y, state.w.y, factor) + state.x, factor);
}

static inline ulong fingerprint(const Key *key)
{
    const ulong factor = K2 + 2 * (ulong)key->length;
    if (key->length <= 16)
        return fingerprint_up_to_16(key, factor);
    if (key->length > 64)
        return fingerprint_longer(key);
    if (key->length > 32)
        return fingerprint_up_to_64(key, factor);
    const ulong2 ends = ends_of(key, word_at(key, 0) * K1, factor);
    return combine(ends.x, ends.y, factor);
}

// sum + term of pairs (high, low).
static inline float2 add_pairs(float2 sum, float2 term)
{
    const float high = sum.x + term.x, back = high - sum.x;
    const float low = (sum.x - (high - back)) + (term.x - back) + sum.y + term.y;
    const float total = high + low;
    return (float2)(total, low - (total - high));
}

// weight * word / 2^63 as a pair.
static inline float2 weighted(long word, float weight)
{
    const float high = (float)(word >> 40), low = (float)(int)((word >> 16) & 0xffffff);
    const float2 value = (float2)(high * 0x1p-23f, low * 0x1p-47f);
    const float product = value.x * weight;
    return (float2)(product, fma(value.x, weight, -product) + value.y * weight);
}

static inline int is_positive(uint seed, global const uchar *rows, global const T *weights, int has_weights, int row_count, int row_bytes)
{
    float2 sum = (float2)(0.0f, 0.0f);
    for (int r = 0; r < row_count; ++r) {
        const Key key = {seed, rows + r * row_bytes, 4 + row_bytes};
        sum = add_pairs(sum, weighted((long)fingerprint(&key), has_weights ? LOAD(weights, r) : 1.0f));
    }
    return sum.x > 0.0f || (sum.x == 0.0f && sum.y > 0.0f);
}

kernel void lsh_projection(global const T *seeds, global const uchar *rows, global const T *weights, global int *dst, int has_weights,
    int row_count, int row_bytes, int bits, int offset, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    uint signature = 0;
    for (int bit = 0; bit < bits; ++bit) {
        const uint seed = as_uint((float)LOAD(seeds, item * bits + bit));
        signature = signature << 1 | (uint)is_positive(seed, rows, weights, has_weights, row_count, row_bytes);
    }
    dst[item] = (int)(signature + (uint)item * (uint)offset);
}

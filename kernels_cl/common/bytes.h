// SPDX-License-Identifier: Apache-2.0
// bytes.h: instructions of AVX-512 that put four vectors of 16 sums together to one of 64 bytes, and take bytes apart, by inline assembly.
// Lanes are counted in groups of 16 bytes, four a vector; every instruction works on each group apart. So vectors a, b of 16 ints, of
// which group i has channels 8 i .. 8 i + 3 and 8 i + 4 .. 8 i + 7, become words of which group i has channels 8 i .. 8 i + 7, and so on.
// Defines  T: uchar | char, common/types.h (required, before inclusion)

#define DEFINE_PAIRWISE(name, instruction)                                                      \
    static inline int16 name(int16 a, int16 b)                                                  \
    {                                                                                           \
        int16 result;                                                                           \
        __asm__(instruction " %2, %1, %0" : "=vr"(result) : "v"(a), "v"(b));                    \
        return result;                                                                          \
    }

DEFINE_PAIRWISE(words_of_ints, "vpackssdw") // saturating
DEFINE_PAIRWISE(add_words, "vpaddsw")
DEFINE_PAIRWISE(least_words, "vpminsw")
DEFINE_PAIRWISE(greatest_words, "vpmaxsw")
DEFINE_PAIRWISE(low_bytes, "vpunpcklbw") // a0 b0 a1 b1 ... of the lower eight bytes of each group
DEFINE_PAIRWISE(high_bytes, "vpunpckhbw")
DEFINE_PAIRWISE(subtract_bytes, "vpsubb")
DEFINE_PAIRWISE(subtract_saturating, "vpsubsb")
DEFINE_PAIRWISE(pick_bytes, "vpshufb") // of each group of a those that b names by its lower four bits, 0 where b's highest is set
DEFINE_PAIRWISE(low_words, "vpunpcklwd")
DEFINE_PAIRWISE(high_words, "vpunpckhwd")
#if T_IS_SIGNED
DEFINE_PAIRWISE(bytes_of_words, "vpacksswb") // saturating
DEFINE_PAIRWISE(least_bytes, "vpminsb")
DEFINE_PAIRWISE(greatest_bytes, "vpmaxsb")
#else
DEFINE_PAIRWISE(bytes_of_words, "vpackuswb")
DEFINE_PAIRWISE(least_bytes, "vpminub")
DEFINE_PAIRWISE(greatest_bytes, "vpmaxub")
#endif

typedef struct __attribute__((packed)) {
    int16 value;
} Unaligned64;
typedef struct __attribute__((packed)) {
    int8 value;
} Unaligned32;
typedef struct __attribute__((packed)) {
    int4 value;
} Unaligned16;
typedef struct __attribute__((packed)) {
    int2 value;
} Unaligned8;
#define LOAD64(p) (((global const Unaligned64 *)(p))->value)
#define STORE64(p, v) (((global Unaligned64 *)(p))->value = (v))
#define LOAD32(p) (((global const Unaligned32 *)(p))->value)
#define STORE32(p, v) (((global Unaligned32 *)(p))->value = (v))

// The lower byte of each of 32 words.
static inline int8 narrow_words(int16 words)
{
    int8 result;
    __asm__("vpmovwb %1, %0" : "=vr"(result) : "v"(words));
    return result;
}

// 32 elements of T, each widened to a word.
static inline int16 widen_to_words(int8 bytes)
{
    int16 result;
#if T_IS_SIGNED
    __asm__("vpmovsxbw %1, %0" : "=vr"(result) : "v"(bytes));
#else
    __asm__("vpmovzxbw %1, %0" : "=vr"(result) : "v"(bytes));
#endif
    return result;
}

// To the nearest integer, ties to even.
static inline int16 nearest(float16 x)
{
    int16 result;
    __asm__("vcvtps2dq %1, %0" : "=vr"(result) : "v"(x));
    return result;
}

// Towards zero, all three.
static inline int16 cut(float16 x)
{
    int16 result;
    __asm__("vcvttps2dq %1, %0" : "=vr"(result) : "v"(x));
    return result;
}

static inline float16 cut_float(float16 x)
{
    float16 result;
    __asm__("vrndscaleps $3, %1, %0" : "=vr"(result) : "v"(x));
    return result;
}

static inline float16 multiply_add_down(float16 x, float16 y, float16 z)
{
    __asm__("vfmadd213ps %{rz-sae%}, %2, %1, %0" : "+vr"(x) : "v"(y), "v"(z));
    return x;
}

// Four neighbouring bytes, signed ones plus 128, in every lane.
static inline int16 spread4(global const uchar *x)
{
#if T_IS_SIGNED
    int16 result;
    __asm__("vpxord %1%{1to16%}, %2, %0" : "=vr"(result) : "m"(*(global const int *)x), "v"((int16)0x80808080));
    return result;
#else
    return (int16)(((global const struct __attribute__((packed)) { int value; } *)x)->value);
#endif
}

// table[x] of 64 bytes x, by sixteen parts of sixteen bytes, each four times. A part that a byte, less 16 for each part before, names by
// bits 0 to 3 counts while bit 7 is clear; the exclusive or of those is the result (chain/byte_tables.py).
static inline int16 look_up_bytes(global const int16 *parts, int16 x)
{
    const int16 length = (int16)0x10101010;
    int16 found = 0;
    for (int part = 0; part < 8; ++part) {
        found ^= pick_bytes(parts[part], x);
        x = subtract_bytes(x, length);
    }
    for (int part = 8; part < 16; ++part) {
        found ^= pick_bytes(parts[part], x);
        x = subtract_saturating(x, length); // what was below 128 counts no more
    }
    return found;
}

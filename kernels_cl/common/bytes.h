// SPDX-License-Identifier: Apache-2.0
// bytes.h: instructions of AVX2 or AVX-512 that put four vectors of sums together to one of bytes, and take bytes apart, by inline assembly.
// Lanes are counted in groups of 16 bytes, two or four a vector; pairwise instructions work on each group apart. So vectors a, b of ints, of
// which group i has channels 8 i .. 8 i + 3 and 8 i + 4 .. 8 i + 7, become words of which group i has channels 8 i .. 8 i + 7, and so on.
// Defines  T: uchar | char, common/types.h, common/dot4.h (required, before inclusion)
//          VBMI: 0 (default) | 1; 1: tables are looked up by an instruction of AVX512-VBMI; with DOT4 3 and 4

#define DEFINE_PAIRWISE(name, instruction)                                                      \
    static inline Ints name(Ints a, Ints b)                                                     \
    {                                                                                           \
        Ints result;                                                                            \
        __asm__(instruction " %2, %1, %0" : "=" RESULT(result) : OPERAND(a), OPERAND(b));       \
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

#define DEFINE_UNALIGNED(name, type)         \
    typedef struct __attribute__((packed)) { \
        type value;                          \
    } name;

#if DOT4_LANES == 16
typedef int8 HalfInts;
#else
typedef int4 HalfInts;
#endif
DEFINE_UNALIGNED(UnalignedInts, Ints)
DEFINE_UNALIGNED(UnalignedHalf, HalfInts)
DEFINE_UNALIGNED(UnalignedInt, int)
DEFINE_UNALIGNED(Unaligned16, int4)
DEFINE_UNALIGNED(Unaligned8, int2)
#define LOAD_INTS(p) (((global const UnalignedInts *)(p))->value)
#define STORE_INTS(p, v) (((global UnalignedInts *)(p))->value = (v))
#define LOAD_HALF(p) (((global const UnalignedHalf *)(p))->value)
#define STORE_HALF(p, v) (((global UnalignedHalf *)(p))->value = (v))

#define DEFINE_UNARY(name, to, from, instruction)                         \
    static inline to name(from x)                                         \
    {                                                                     \
        to result;                                                        \
        __asm__(instruction " %1, %0" : "=" RESULT(result) : OPERAND(x)); \
        return result;                                                    \
    }

DEFINE_UNARY(nearest, Ints, Floats, "vcvtps2dq") // ties to even
DEFINE_UNARY(cut, Ints, Floats, "vcvttps2dq") // towards zero, all of these
#if DOT4_LANES == 16
DEFINE_UNARY(cut_float, Floats, Floats, "vrndscaleps $3,")
DEFINE_UNARY(narrow_words, int8, int16, "vpmovwb") // the lower byte of each of 32 words
#if T_IS_SIGNED
DEFINE_UNARY(widen_to_words, int16, int8, "vpmovsxbw") // 32 elements of T
#else
DEFINE_UNARY(widen_to_words, int16, int8, "vpmovzxbw")
#endif
#else
DEFINE_UNARY(cut_float, Floats, Floats, "vroundps $3,")
#endif

// multiply_add_down rounds towards zero between round_down and round_to_nearest, a pair for every task. With AVX2 these set the control
// register of floating-point arithmetic: what comes between may give no other floats than integers, of which those beyond 2^24 may be
// rounded either way. What is volatile keeps its order, and loads stay on their side of "memory".
typedef struct {
    uint nearest, down; // of that register
} RoundingModes;

#if DOT4_LANES == 16
static inline RoundingModes rounding_modes(void)
{
    return (RoundingModes){0, 0};
}

static inline void round_down(const RoundingModes *modes) {}
static inline void round_to_nearest(const RoundingModes *modes) {}

static inline Floats multiply_add_down(Floats x, Floats y, Floats z)
{
    __asm__("vfmadd213ps %{rz-sae%}, %2, %1, %0" : "+" RESULT(x) : OPERAND(y), OPERAND(z));
    return x;
}
#else
static inline RoundingModes rounding_modes(void)
{
    uint now; // which takes three times as long to read as to set
    __asm__ volatile("stmxcsr %0" : "=m"(now));
    return (RoundingModes){now, now | 0x6000};
}

static inline void round_down(const RoundingModes *modes)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(modes->down) : "memory");
}

static inline void round_to_nearest(const RoundingModes *modes)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(modes->nearest) : "memory");
}

static inline Floats multiply_add_down(Floats x, Floats y, Floats z)
{
    __asm__ volatile("vfmadd213ps %2, %1, %0" : "+" RESULT(x) : OPERAND(y), OPERAND(z));
    return x;
}
#endif

#if DOT4_LANES == 16
#define OF_SIXTEEN(type, function, x) function(x)
#else
#define OF_SIXTEEN(type, function, x) (type)(function((x).lo), function((x).hi))
#endif
#define DEFINE_FOR_SIXTEEN(to, function, from) \
    static inline to function##_16(from x)     \
    {                                          \
        return OF_SIXTEEN(to, function, x);    \
    }

DEFINE_FOR_SIXTEEN(int16, nearest, float16)
DEFINE_FOR_SIXTEEN(int16, cut, float16)
DEFINE_FOR_SIXTEEN(float16, cut_float, float16)

#define SIGN_BITS (Ints)0x80808080

// Four neighbouring bytes, signed ones plus 128, in every lane. sign_bits: SIGN_BITS on the stack: a tile of a convolution leaves none of
// AVX2's 16 registers, and no other for an address.
static inline Ints spread4(global const uchar *x, const Ints *sign_bits)
{
#if !T_IS_SIGNED
    return (Ints)(((global const UnalignedInt *)x)->value);
#elif DOT4_LANES == 16
    Ints result;
    __asm__("vpxord %1%{1to16%}, %2, %0" : "=" RESULT(result) : "m"(*(global const int *)x), OPERAND(SIGN_BITS));
    return result;
#else
    Ints result;
    __asm__("vpbroadcastd %1, %0\n\tvpxor %2, %0, %0" : "=" RESULT(result) : "m"(*(global const int *)x), "m"(*sign_bits));
    return result;
#endif
}

// Where a quad of a window lies whose runs are run_step bytes apart; place: 65536 times its run, plus its number in it.
static inline long quad_offset(int place, long run_step)
{
    return (place >> 16) * run_step + 4 * (place & 0xffff);
}

static inline int16 spread4_16(global const uchar *x, const Ints *sign_bits)
{
#if DOT4_LANES == 16
    return spread4(x, sign_bits);
#else
    const Ints result = spread4(x, sign_bits);
    return (int16)(result, result);
#endif
}

// table[x] of 64 bytes x (byte_tables.py). By instructions that pick among 128 bytes, of both halves of the table as it is; else by
// sixteen parts of sixteen bytes, each four times: one that a byte, less 16 for each part before, names by bits 0 to 3 counts while bit 7
// is clear; the exclusive or of those is the result.
#ifndef VBMI
#define VBMI 0
#endif
#if VBMI
// Of 64 bytes x, those of two times 64 that their lower seven bits name.
static inline int16 pick_of_128(int16 x, int16 first, int16 second)
{
    __asm__("vpermi2b %2, %1, %0" : "+" RESULT(x) : OPERAND(first), OPERAND(second));
    return x;
}

static inline int16 look_up_bytes(global const int16 *parts, int16 x)
{
    global const int16 *table = parts + 16;
    const int16 is_lower = pick_bytes((int16)-1, x);
    return (pick_of_128(x, table[0], table[1]) & is_lower) | (pick_of_128(x, table[2], table[3]) & ~is_lower);
}
#else
#if DOT4_LANES == 16
#define PART(i) parts[i]
#else
#define PART(i) parts[i].lo
#endif
static inline Ints look_up_lanes(global const int16 *parts, Ints x)
{
    const Ints length = (Ints)0x10101010;
    Ints found = 0;
    for (int part = 0; part < 8; ++part) {
        found ^= pick_bytes(PART(part), x);
        x = subtract_bytes(x, length);
    }
    for (int part = 8; part < 16; ++part) {
        found ^= pick_bytes(PART(part), x);
        x = subtract_saturating(x, length); // what was below 128 counts no more
    }
    return found;
}

static inline int16 look_up_bytes(global const int16 *parts, int16 x)
{
#if DOT4_LANES == 16
    return look_up_lanes(parts, x);
#else
    return (int16)(look_up_lanes(parts, x.lo), look_up_lanes(parts, x.hi));
#endif
}
#endif

// SPDX-License-Identifier: Apache-2.0
// dot4.h: sums of four products of bytes by inline assembly: PoCL and Intel's runtime on an x86 CPU (probe.py tries it).
// Defines  DOT4: 1: vpmaddwd of AVX2, 2: vpdpbusd of AVX-VNNI, 3: vpdpbusd of AVX512_VNNI, 4: the same, and amx.h for convolutions
//          (required)
// Gives    DOT4_LANES: sums in a register, 8 or 16; Ints, Floats: vectors of so many; dot4; dot4_16: the same for sixteen
//          OPERAND, RESULT: constraints of such vectors; with DOT4 1 dot2, add_dot2 and what makes words of bytes, too
//          VECTORS: of 16 sums of each pixel of a tile; GROUP_QUADS: four weights of 16 channels that a group of tiles multiplies by
// An "r" besides: Intel's front end knows no vector registers and wants a letter that it knows; LLVM takes the first that fits.
#include "common/wide_vectors.h"

#if DOT4 >= 3
#define DOT4_LANES 16
#define OPERAND "v"
#define RESULT "vr"
typedef int16 Ints;
typedef float16 Floats;
#else
#define DOT4_LANES 8
#define OPERAND "x" // not those that instructions of AVX2 cannot name
#define RESULT "xr"
typedef int8 Ints;
typedef float8 Floats;
#endif
#define VECTORS (DOT4_LANES / 8) // so that the sums of TILE_PIXELS pixels fit into registers
#define GROUP_QUADS 384          // which stay in a core's first cache with what else it needs

// Each lane: sum + four unsigned bytes of x times four signed bytes of w.
#if DOT4 == 1
static inline Ints dot2(Ints x, Ints w)
{
    Ints result;
    __asm__("vpmaddwd %2, %1, %0" : "=" RESULT(result) : OPERAND(x), OPERAND(w));
    return result;
}

// Each lane: sum + two words of x times two of w. One piece of assembly: compilers would add two products first and have no registers for them.
static inline Ints add_dot2(Ints sum, Ints x, Ints w)
{
    Ints product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+" RESULT(sum), "=&" RESULT(product) : OPERAND(x), OPERAND(w));
    return sum;
}

// Signed bytes at even places and at odd ones, as words.
static inline Ints even_words(Ints w)
{
    return as_int8(as_short16(as_short16(w) << (short16)8) >> (short16)8);
}

static inline Ints odd_words(Ints w)
{
    return as_int8(as_short16(w) >> (short16)8);
}

static inline Ints dot4(Ints sum, Ints x, Ints w)
{
    return sum + dot2(x & (Ints)0x00ff00ff, even_words(w)) + dot2(as_int8(as_ushort16(x) >> (ushort16)8), odd_words(w));
}
#else
static inline Ints dot4(Ints sum, Ints x, Ints w)
{
#if DOT4 == 2
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+" RESULT(sum) : OPERAND(x), OPERAND(w));
#else
    __asm__("vpdpbusd %2, %1, %0" : "+" RESULT(sum) : OPERAND(x), OPERAND(w));
#endif
    return sum;
}
#endif

static inline int16 dot4_16(int16 sum, int16 x, int16 w)
{
#if DOT4_LANES == 16
    return dot4(sum, x, w);
#else
    return (int16)(dot4(sum.lo, x.lo, w.lo), dot4(sum.hi, x.hi, w.hi));
#endif
}

// SPDX-License-Identifier: Apache-2.0
// types.h: reading and writing elements of T, one at a time or sixteen.
// Defines  T: float | half | uchar | char | short | ushort | int (required)
// Gives    COMPUTE_T, COMPUTE_T16: float for float and half, else int: the type arithmetic is done in
//          LOAD(p, i), LOAD16(p, i): element i, elements i..i+15 of `global const T *p`, widened; any alignment
//          STORE(p, i, v), STORE16(p, i, v): the inverse, into `global T *p`; v of COMPUTE_T, in the range of T, half rounds to nearest even
//          STORE_SAT(p, i, v): the same for any integer v, saturating; equal to STORE for float and half
//          ROUND(v), ROUND16(v): v of COMPUTE_T, COMPUTE_T16 as it is after STORE and LOAD; v itself but for half
//          T_IS_FLOAT, T_IS_HALF, T_IS_SIGNED: 0 or 1, for #if
//          WIDEN(v, type), e.g. WIDEN(v, float16): element-wise conversion of a vector, one instruction where the CPU has it
//          TILE_KERNEL: `kernel` for one work-item per register tile, with explicit vectors and local size (1, 1, 1)
//          VECTOR_KERNEL: `kernel` for work-items that loop over explicit vectors, local size (GROUP, 1, 1); GROUP: 1 unless defined
//          HALVES(n, p), PUT_HALVES(n, p, v): n halves on a multiple of 2 n bytes as floats, n 4 or 8 (half only)
//          VECTORS_BY_ALIGNMENT: 0 (default) | 1: LOAD16 and STORE16 look whether they may use aligned vectors, for devices that
//          move unaligned ones byte by byte: GPUs
//          HALF_BY_ASSEMBLY: 0 (default) | 1: halves are converted sixteen at a time by instructions of AVX-512, where the compiler makes
//          two of eight, slow ones to memory; 1 only where inline assembly with such registers works (programs.py)
//          SIGN_APART: 0 (default) | 1: ROUND puts the sign back by itself, for a compiler that leaves out a conversion to half and back:
//          rusticl's of Mesa 26.1
//          FLUSH_DENORMALS: see common/denormals.h
//          INLINE: what functions with barriers must be: where PoCL 3.0 does not inline them, work-groups that run at the same time
//          disturb each other
// half is a storage type only, so no device needs cl_khr_fp16.
#ifndef T
#error "types.h: define T"
#endif

#include "common/denormals.h"
#include "common/wide_vectors.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define INLINE __attribute__((always_inline)) inline

#define TYPE_NUMBER_float 1
#define TYPE_NUMBER_half 2
#define TYPE_NUMBER_uchar 3
#define TYPE_NUMBER_char 4
#define TYPE_NUMBER_short 5
#define TYPE_NUMBER_ushort 6
#define TYPE_NUMBER_int 7
#define TYPE_NUMBER JOIN(TYPE_NUMBER_, T)

#define T_IS_FLOAT (TYPE_NUMBER == 1 || TYPE_NUMBER == 2)
#define T_IS_HALF (TYPE_NUMBER == 2)
#define T_IS_SIGNED (TYPE_NUMBER != 3 && TYPE_NUMBER != 6)

// PoCL 3.0 splits convert_type16 into halves of halves; the builtin stays one vector instruction.
#ifdef __has_builtin
#if __has_builtin(__builtin_convertvector)
#define WIDEN(v, type) __builtin_convertvector(v, type)
#endif
#endif
#ifndef WIDEN
#define WIDEN(v, type) JOIN(convert_, type)(v)
#endif

#if T_IS_FLOAT
typedef float COMPUTE_T;
typedef float16 COMPUTE_T16;
#else
typedef int COMPUTE_T;
typedef int16 COMPUTE_T16;
#endif

#if !T_IS_HALF
// PoCL 3.0 makes eight loads of vload16 on uchar; a packed structure stays one unaligned load or store.
typedef JOIN(T, 16) T16;
typedef struct __attribute__((packed)) {
    T16 value;
} UnalignedT16;
#endif

#ifndef HALF_BY_ASSEMBLY
#define HALF_BY_ASSEMBLY 0
#endif

#if T_IS_FLOAT
// PoCL 3.0 makes aligned loads and stores of vload_half16 and vstore_half16_rte, so that they go through a private vector.
typedef struct __attribute__((packed)) {
    ushort16 value;
} UnalignedBits16;

#if HALF_BY_ASSEMBLY
static inline float16 float16_of(ushort16 bits)
{
    float16 v;
    __asm__("vcvtph2ps %1, %0" : "=vr"(v) : "v"(bits));
    return v;
}

static inline ushort16 half16_of(float16 v)
{
    ushort16 bits;
    __asm__("vcvtps2ph $0, %1, %0" : "=vr"(bits) : "v"(v));
    return bits;
}
#else
static inline float16 float16_of(ushort16 bits)
{
    return vload_half16(0, (const half *)&bits);
}

static inline ushort16 half16_of(float16 v)
{
    ushort16 bits;
    vstore_half16_rte(v, 0, (half *)&bits);
    return bits;
}
#endif
#endif

#ifndef VECTORS_BY_ALIGNMENT
#define VECTORS_BY_ALIGNMENT 0
#endif

#ifndef SIGN_APART
#define SIGN_APART 0
#endif

#if T_IS_HALF
#define STORED ushort
typedef UnalignedBits16 UnalignedStored16;
#else
#define STORED T
typedef UnalignedT16 UnalignedStored16;
#endif

// Sixteen elements as they are in memory.
#if VECTORS_BY_ALIGNMENT
#if TYPE_NUMBER == 3 || TYPE_NUMBER == 4
#define OF_WORDS(words) JOIN(JOIN(as_, STORED), 16)((words)[0])
#define PUT_WORDS(words, v) (words)[0] = as_uint4(v)
#elif TYPE_NUMBER == 1 || TYPE_NUMBER == 7
#define QUARTER(word) JOIN(JOIN(as_, STORED), 4)(word)
#define OF_WORDS(words) ((JOIN(STORED, 16))(QUARTER((words)[0]), QUARTER((words)[1]), QUARTER((words)[2]), QUARTER((words)[3])))
#define PUT_WORDS(words, v)                                                                                                \
    (words)[0] = as_uint4((v).lo.lo), (words)[1] = as_uint4((v).lo.hi), (words)[2] = as_uint4((v).hi.lo), (words)[3] = as_uint4((v).hi.hi)
#else
#define HALF_OF(word) JOIN(JOIN(as_, STORED), 8)(word)
#define OF_WORDS(words) ((JOIN(STORED, 16))(HALF_OF((words)[0]), HALF_OF((words)[1])))
#define PUT_WORDS(words, v) (words)[0] = as_uint4((v).lo), (words)[1] = as_uint4((v).hi)
#endif

static inline JOIN(STORED, 16) load_sixteen(global const STORED *p)
{
    global const uint4 *words = (global const uint4 *)p;
    if ((size_t)p % sizeof(uint4) == 0)
        return OF_WORDS(words);
    return vload16(0, p);
}

static inline void store_sixteen(JOIN(STORED, 16) v, global STORED *p)
{
    global uint4 *words = (global uint4 *)p;
    if ((size_t)p % sizeof(uint4) == 0)
        PUT_WORDS(words, v);
    else
        vstore16(v, 0, p);
}

#define LOAD_SIXTEEN(p) load_sixteen((global const STORED *)(p))
#define STORE_SIXTEEN(p, v) store_sixteen(v, (global STORED *)(p))
#else
#define LOAD_SIXTEEN(p) (((global const UnalignedStored16 *)(p))->value)
#define STORE_SIXTEEN(p, v) (((global UnalignedStored16 *)(p))->value = (v))
#endif

#if T_IS_HALF
static inline float round_half(float v)
{
    ushort bits;
#if SIGN_APART
    vstore_half_rte(fabs(v), 0, (half *)&bits);
    bits |= as_uint(v) >> 16 & 0x8000;
#else
    vstore_half_rte(v, 0, (half *)&bits);
#endif
    return vload_half(0, (const half *)&bits);
}

// NVIDIA's compiler makes single loads and stores of vloada_half4 and vstorea_half4_rte.
#define HALVES_OF(n, words)                                                                                                \
    static inline float##n float##n##_of(words bits)                                                                       \
    {                                                                                                                      \
        ushort parts[n];                                                                                                   \
        float values[n];                                                                                                   \
        vstore##n(as_ushort##n(bits), 0, parts);                                                                           \
        _Pragma("unroll") for (int i = 0; i < n; ++i)                                                                      \
            values[i] = vload_half(i, (const half *)parts);                                                                \
        return vload##n(0, values);                                                                                        \
    }                                                                                                                      \
                                                                                                                           \
    static inline words half##n##_of(float##n v)                                                                           \
    {                                                                                                                      \
        ushort parts[n];                                                                                                   \
        float values[n];                                                                                                   \
        vstore##n(v, 0, values);                                                                                           \
        _Pragma("unroll") for (int i = 0; i < n; ++i)                                                                      \
            vstore_half_rte(values[i], i, (half *)parts);                                                                  \
        return as_##words(vload##n(0, parts));                                                                             \
    }
HALVES_OF(4, uint2)
HALVES_OF(8, uint4)
#define WORDS_4 uint2
#define WORDS_8 uint4
#define HALVES(n, p) JOIN(JOIN(float, n), _of)(*(global const JOIN(WORDS_, n) *)(p))
#define PUT_HALVES(n, p, v) (*(global JOIN(WORDS_, n) *)(p) = JOIN(JOIN(half, n), _of)(v))

#define LOAD(p, i) vload_half(i, p)
#define LOAD16(p, i) float16_of(LOAD_SIXTEEN((p) + (i)))
#define STORE(p, i, v) vstore_half_rte(v, i, p)
#define STORE16(p, i, v) STORE_SIXTEEN((p) + (i), half16_of(v))
#define STORE_SAT(p, i, v) STORE(p, i, v)
#define ROUND(v) round_half(v)
#define ROUND16(v) float16_of(half16_of(v))
#elif T_IS_FLOAT
#define LOAD(p, i) ((p)[i])
#define LOAD16(p, i) LOAD_SIXTEEN((p) + (i))
#define STORE(p, i, v) ((p)[i] = (v))
#define STORE16(p, i, v) STORE_SIXTEEN((p) + (i), v)
#define STORE_SAT(p, i, v) STORE(p, i, v)
#else
#define LOAD(p, i) ((int)(p)[i])
#define LOAD16(p, i) WIDEN(LOAD_SIXTEEN((p) + (i)), int16)
#define STORE(p, i, v) ((p)[i] = (T)(v))
#define STORE16(p, i, v) STORE_SIXTEEN((p) + (i), WIDEN(v, T16))
#define STORE_SAT(p, i, v) ((p)[i] = JOIN(JOIN(convert_, T), _sat)(v))
#endif

#if !T_IS_HALF
#define ROUND(v) (v)
#define ROUND16(v) (v)
#endif

// Without the hint Intel's compiler also makes a version of 16 work-items at once, never run at this local size:
// seven times the build time, and slower code beside it.
#define TILE_KERNEL __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(float16))) kernel

#ifndef GROUP
#define GROUP 1
#endif
#define VECTOR_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1), vec_type_hint(float16))) kernel

// Where the work-items of a VECTOR_KERNEL's group meet. A lone one meets nobody: PoCL makes loops of what is between barriers, again for
// sizes it does not know when it is asked for a binary, and takes seconds.
#if GROUP == 1
#define GROUP_BARRIER(fence)
#else
#define GROUP_BARRIER(fence) barrier(fence)
#endif

// SPDX-License-Identifier: Apache-2.0
// shuffle.h: sixteen elements out of two vectors of sixteen.
// Gives    SHUFFLE(M, a, b, i0, ..., i15): elements i0 .. i15 of a (0 to 15) and b (16 to 31), which are constants; M: the vector of unsigned
//          integers of their size
//          INTERLEAVE_LOW(M, a, b), INTERLEAVE_HIGH: one of a and one of b in turn, of their first or of their last eight
//          EVEN_OF(M, a, b), ODD_OF: every second of a and then of b
// Intel's compiler makes one move for each element of (uchar16)(a.s0, b.s0, ...), and PoCL 3.0 of shuffle2.
#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(M, a, b, i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14, i15) \
    __builtin_shufflevector(a, b, i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14, i15)
#endif
#endif
#ifndef SHUFFLE
#define SHUFFLE(M, a, b, i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14, i15) \
    shuffle2(a, b, (M)(i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14, i15))
#endif
#define INTERLEAVE_LOW(M, a, b) SHUFFLE(M, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INTERLEAVE_HIGH(M, a, b) SHUFFLE(M, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define EVEN_OF(M, a, b) SHUFFLE(M, a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD_OF(M, a, b) SHUFFLE(M, a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)

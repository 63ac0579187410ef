// SPDX-License-Identifier: Apache-2.0
// dot4.h: the instruction vpdpbusd by inline assembly: PoCL and Intel's runtime on an x86 CPU with AVX512_VNNI (probe.py tries it).

// Each lane: sum + four unsigned bytes of x times four signed bytes of w.
// "vr", not "v": Intel's front end knows no vector registers and wants a letter that it knows; LLVM takes the first that fits.
static inline int16 dot4(int16 sum, int16 x, int16 w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+vr"(sum) : "v"(x), "v"(w));
    return sum;
}

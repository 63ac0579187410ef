// SPDX-License-Identifier: Apache-2.0
// tile.h: what the register tiles of convolutions share: how their inputs are staged, and the end of a tile.
// Defines  T, QUANTIZED, DOT4, DEPTH_CHUNK, common/chain_step.h (all required, before inclusion)
//          TILE_PIXELS: pixels of a tile; TILE_VECTORS: vectors of 16 channels of each, 1 to 3: their sums must fit into registers
// Gives    what common/window.h requires, PIXELS, finish_block

#ifndef TILE_PIXELS
#define TILE_PIXELS 7 // as chain/tiles.py counts them
#endif
#ifndef TILE_VECTORS
#define TILE_VECTORS 3
#endif
#define TWO_AT_MOST (TILE_VECTORS > 1 ? 2 : 1) // vectors of kernels that are made for one or two
// APART(pointer): compilers take it for one of its own. Else they keep one for all pixels of a tile and add up, which takes a third of the
// instructions of a loop where registers are few and half as wide (TILE_VECTORS 1).
#ifndef POINTERS_BY_ASSEMBLY
#define POINTERS_BY_ASSEMBLY 0 // 1: assembly is known to work
#endif
#if POINTERS_BY_ASSEMBLY || OF_BYTES && DOT4 == 1
#define APART(pointer) __asm__("" : "+r"(pointer))
#else
#define APART(pointer)
#endif
#define PIXELS _Pragma("unroll") for (int p = 0; p < TILE_PIXELS; ++p)
#define PIXELS_OF(width) PIXELS if (p < (width)) // of a tile of as many, a constant

#if DOT4
typedef struct __attribute__((packed)) {
    uchar16 value;
} UnalignedUchar16;
#endif

#if OF_BYTES
// Bytes. Copies overrun by up to 15 elements, zeros behind the last product by up to 15 more.
#define STAGE_WIDTH (DEPTH_CHUNK + 64)
#if T_IS_SIGNED
#define TO_UNSIGNED 0x80
#else
#define TO_UNSIGNED 0
#endif
#define STAGE_T uchar
#define STAGE16(stage, value16) (((UnalignedUchar16 *)(stage))->value = (value16))
#define STAGED(src, i, zero) ((uchar)(src)[i])
#define STAGED16(src, i, zero) (((global const UnalignedUchar16 *)((src) + (i)))->value)
#define STAGED_PADDING16(zero) (uchar16)(uchar)(zero)
#else
typedef struct __attribute__((packed)) {
    float16 value;
} UnalignedFloat16;
#if QUANTIZED
// Floats. Copies overrun by up to 15 elements; the width also keeps rows off the same cache sets.
#define STAGE_WIDTH (DEPTH_CHUNK + 16)
#define STAGE_T float
#define STAGE16(stage, value16) (((UnalignedFloat16 *)(stage))->value = (value16))
#define STAGED(src, i, zero) (float)(LOAD(src, i) - (zero))
#define STAGED16(src, i, zero) WIDEN(LOAD16(src, i) - (zero), float16)
#else
// Floats in a work-group's own part of global memory, so that kernels read them as they read tensors.
#define STAGE_T global float
#define STAGE16(stage, value16) (((global UnalignedFloat16 *)(stage))->value = (value16))
#define STAGED(src, i, zero) LOAD(src, i)
#define STAGED16(src, i, zero) LOAD16(src, i)
#endif
#define STAGED_PADDING16(zero) (float16)(0.0f)
#endif

#if QUANTIZED
// A call, which PoCL 3.0 makes otherwise, takes a quarter of the time of a convolution of few products.
#define INLINED inline __attribute__((always_inline))
#define ADD_RESIDUAL(s, value, residual) add_residual16(s, value, residual)
#define FINISH(value) (value)
#else
#define INLINED inline
#define ADD_RESIDUAL(s, value, residual) (ROUND16(value) + (residual))
#define FINISH(value) activate16(value, low, high)
#endif

// Scales, activates and stores `count` channels of `rows` pixels, from element `offset` of dst on.
static INLINED void finish_block(const Step *s, global T *dst, global const T *residual, const COMPUTE_T16 *totals, int rows,
                                 int offset, int count, COMPUTE_T16 multiplier, COMPUTE_T16 shift, COMPUTE_T16 rounding)
{
    const COMPUTE_T low = s->low, high = s->high;
    const int depth_out = s->depth_out, has_residual = s->has_residual;
    COMPUTE_T16 values[TILE_PIXELS];
#if QUANTIZED
    PIXELS values[p] = requantize16(s, totals[p], multiplier, shift, rounding);
#else
    PIXELS values[p] = totals[p];
#endif
    if (rows == TILE_PIXELS && count == 16) {
        global T *y = dst + offset;
        if (has_residual) {
            global const T *x = residual + offset;
            PIXELS {
                values[p] = ADD_RESIDUAL(s, values[p], LOAD16(x, 0));
                x += depth_out;
            }
        }
        PIXELS {
            STORE16(y, 0, FINISH(values[p]));
            y += depth_out;
        }
    } else {
        COMPUTE_T16 some[TILE_PIXELS]; // a copy, for its index is no constant
        PIXELS some[p] = values[p];
        for (int p = 0; p < rows; ++p, offset += depth_out) {
            COMPUTE_T16 value = some[p];
            if (has_residual)
                value = ADD_RESIDUAL(s, value, load_lanes(residual, offset, count));
            store_lanes(dst, offset, FINISH(value), count);
        }
    }
}

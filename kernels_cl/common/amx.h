// SPDX-License-Identifier: Apache-2.0
// amx.h: products of 16 pixels and 32 channels by the tile registers of Intel's AMX, by inline assembly.
// Maths    sum x * w, x signed or not, w signed
// Tensors  inputs: rows of bytes, as far apart as one likes; weights: quads of 16 channels, [quads][16][4]
// Units    a chunk: 16 quads; the last of a run is 1 to 16
// Needs    a process that may use these registers (gpu_driver/discovery/host_cpu.py); compilers use them nowhere else
#define CHUNK_QUADS 16
#define UNSIGNED_PRODUCTS "tdpbusd"
#define SIGNED_PRODUCTS "tdpbssd"

// What ldtilecfg reads.
typedef struct {
    uchar palette, start_row, reserved[14];
    ushort row_bytes[16];
    uchar rows[16];
} TileShapes;

// Registers 0 and 1: sums; 2: pixels and 3, 4: weights of a chunk; 5 and 6: the same of the last one.
static inline void shape_tiles(int last_quads)
{
    TileShapes shapes = {1};
    for (int i = 0; i < 7; ++i) {
        shapes.row_bytes[i] = i == 5 ? 4 * last_quads : 64;
        shapes.rows[i] = i == 6 ? last_quads : 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

static inline void release_tiles(void)
{
    __asm__ volatile("tilerelease");
}

// Both sums begin with those of their channels, in every pixel.
static inline void begin_tiles(global const int16 *bias0, global const int16 *bias1)
{
    __asm__ volatile("tileloadd (%0,%2,1), %%tmm0\n\ttileloadd (%1,%2,1), %%tmm1"
                     : : "r"(bias0), "r"(bias1), "r"(0L) : "memory");
}

static inline void end_tiles(int16 *sum0, int16 *sum1)
{
    __asm__ volatile("tilestored %%tmm0, (%0,%2,1)\n\ttilestored %%tmm1, (%1,%2,1)" : : "r"(sum0), "r"(sum1), "r"(64L) : "memory");
}

// Adds the products of a run: whole chunks, and what is left of `quads`, if anything.
#define DEFINE_MULTIPLY_TILES(SIGNEDNESS, PRODUCTS)                                                                              \
    static inline void multiply_##SIGNEDNESS##_tiles(global const uchar *x, long step, global const int16 *w0,                   \
                                                     global const int16 *w1, int quads, int has_last)                            \
    {                                                                                                                            \
        const int chunks = has_last ? (quads - 1) / CHUNK_QUADS : quads / CHUNK_QUADS;                                           \
        for (int i = 0; i < chunks; ++i, x += 4 * CHUNK_QUADS, w0 += CHUNK_QUADS, w1 += CHUNK_QUADS)                             \
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm2\n\ttileloadd (%2,%4,1), %%tmm3\n\t" PRODUCTS " %%tmm3, %%tmm2, %%tmm0\n\t" \
                             "tileloadd (%3,%4,1), %%tmm4\n\t" PRODUCTS " %%tmm4, %%tmm2, %%tmm1"                                \
                             : : "r"(x), "r"(step), "r"(w0), "r"(w1), "r"(64L) : "memory");                                      \
        if (has_last)                                                                                                            \
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm5\n\ttileloadd (%2,%4,1), %%tmm6\n\t" PRODUCTS " %%tmm6, %%tmm5, %%tmm0\n\t" \
                             "tileloadd (%3,%4,1), %%tmm6\n\t" PRODUCTS " %%tmm6, %%tmm5, %%tmm1"                                \
                             : : "r"(x), "r"(step), "r"(w0), "r"(w1), "r"(64L) : "memory");                                      \
    }
DEFINE_MULTIPLY_TILES(unsigned, UNSIGNED_PRODUCTS)
DEFINE_MULTIPLY_TILES(signed, SIGNED_PRODUCTS)

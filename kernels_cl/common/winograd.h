// SPDX-License-Identifier: Apache-2.0
// winograd.h: a convolution of 3 x 3 taps, stride 1, with a quarter of the products: F(4 x 4, 3 x 3) after Winograd.
// Maths    D: the 6 x 6 inputs of a tile of 4 x 4 outputs, channel by channel; V = B^T D B; place by place of 36
//          M[o] = sum over i of V[i] * U[i,o]; Y = A^T M A, then bias, residual and activation. U = G g G^T of the filters g is made on
//          the host. Points 0, +-P, +-Q and infinity: A has powers of the points, G those over products of their differences, B^T the
//          coefficients of the polynomials that are 0 at all points but one (winograd.py: filter_transform; docs/decisions/0006)
// Tensors  as convolve.h; weights float: [ceil(depth_out / 32)][36][1 or 2 vectors][depth_in][16] (winograd.py: pack_weights)
//          filters float: packed as convolve.h has them
//          work: float, of this work-group alone: V [36][tiles_at_once][depth_in rounded up + 16], then M [36][tiles_at_once][32], 16 more
//          between places, so that neighbours do not share cache sets
// Defines  T float or half, common/tile.h, common/prefetch.h (all required, before inclusion)
// Needs    depth_in >= 16, no dilation
// Exact    fused multiply-adds, by ascending i; what a tile's bits are does not depend on the other tiles of a task.
//          Sums that are not finite are computed anew as convolve.h does, so that infinity and NaN spread no further than there.
// Tiles may reach beyond the picture; what they compute there is left out.

#define POINT_P 0.625f
#define POINT_Q 1.5f
#define PLACES 36

typedef struct __attribute__((packed)) {
    float16 value;
} UnalignedWork16;
#define WORK16(p) (((global UnalignedWork16 *)(p))->value)

// Of one column or row: B^T X, A^T X.
#define TRANSFORM_INPUT(X, PUT)                                                                                              \
    {                                                                                                                        \
        const float16 x0 = X(0), x1 = X(1), x2 = X(2), x3 = X(3), x4 = X(4), x5 = X(5);                                      \
        const float16 even_p = fma((float16)(-POINT_Q * POINT_Q), x2, x4), odd_p = fma((float16)(-POINT_Q * POINT_Q), x1, x3); \
        const float16 even_q = fma((float16)(-POINT_P * POINT_P), x2, x4), odd_q = fma((float16)(-POINT_P * POINT_P), x1, x3); \
        const float16 product = (float16)(POINT_P * POINT_P * POINT_Q * POINT_Q);                                            \
        const float16 sum = (float16)(-POINT_P * POINT_P - POINT_Q * POINT_Q);                                               \
        PUT(0, fma(product, x0, fma(sum, x2, x4)));                                                                          \
        PUT(1, fma((float16)(POINT_P), odd_p, even_p));                                                                      \
        PUT(2, fma((float16)(-POINT_P), odd_p, even_p));                                                                     \
        PUT(3, fma((float16)(POINT_Q), odd_q, even_q));                                                                      \
        PUT(4, fma((float16)(-POINT_Q), odd_q, even_q));                                                                     \
        PUT(5, fma(product, x1, fma(sum, x3, x5)));                                                                          \
    }
#define TRANSFORM_OUTPUT(X, PUT)                                                                                             \
    {                                                                                                                        \
        const float16 x1 = X(1), x2 = X(2), x3 = X(3), x4 = X(4);                                                            \
        const float16 even_p = x1 + x2, odd_p = x1 - x2, even_q = x3 + x4, odd_q = x3 - x4;                                  \
        const float16 p3 = (float16)(POINT_P * POINT_P * POINT_P), q3 = (float16)(POINT_Q * POINT_Q * POINT_Q);              \
        PUT(0, X(0) + (even_p + even_q));                                                                                    \
        PUT(1, fma((float16)(POINT_P), odd_p, (float16)(POINT_Q) * odd_q));                                                  \
        PUT(2, fma((float16)(POINT_P * POINT_P), even_p, (float16)(POINT_Q * POINT_Q) * even_q));                            \
        PUT(3, fma(p3, odd_p, fma(q3, odd_q, X(5))));                                                                        \
    }

// A tile by its first output.
typedef struct {
    int image, y, x;
} WinogradTile;

static inline WinogradTile winograd_tile(const Step *s, int number)
{
    const int across = ceil_divide(s->out_width, 4), down = ceil_divide(s->out_height, 4);
    const int row = number / across, image = row / down;
    const WinogradTile tile = {image, (row - image * down) * 4, (number - row * across) * 4};
    return tile;
}

// V of one tile, to work[0], work[plane] and so on. whole: all inputs lie in the picture, which starts at src.
static inline __attribute__((always_inline)) void transform_inputs(global const T *src, int y, int x, int height, int width, int depth,
                                                                   int whole, global float *work, int plane)
{
    for (int first = 0; first < depth; first += 16) {
        const int channel = min(first, depth - 16);
        float16 columns[6][6];
#define IN_PICTURE(i, j) (whole || (inside(y + (i), height) && inside(x + (j), width)))
#define FROM_PICTURE(i) (IN_PICTURE(i, j) ? LOAD16(src, ((y + (i)) * width + x + j) * depth + channel) : (float16)0.0f)
#define TO_COLUMN(i, value) columns[i][j] = (value)
#define FROM_ROW(j) columns[i][j]
#define TO_WORK(j, value) WORK16(work + (i * 6 + (j)) * plane + channel) = (value)
        _Pragma("unroll") for (int j = 0; j < 6; ++j) TRANSFORM_INPUT(FROM_PICTURE, TO_COLUMN)
        _Pragma("unroll") for (int i = 0; i < 6; ++i) TRANSFORM_INPUT(FROM_ROW, TO_WORK)
    }
}

static __attribute__((noinline)) void tile_to_work(const Step *s, global const T *src, WinogradTile tile, global float *work, int plane)
{
    const int height = s->height, width = s->width, depth = s->depth_in;
    const int y = tile.y - s->padding_top, x = tile.x - s->padding_left;
    global const T *image = src + nhwc_offset(tile.image, 0, 0, height, width, depth);
    if (y >= 0 && x >= 0 && y + 6 <= height && x + 6 <= width)
        transform_inputs(image, y, x, height, width, depth, 1, work, plane);
    else
        transform_inputs(image, y, x, height, width, depth, 0, work, plane);
}

// Adds, activates and stores `count` channels from `channel` on of one output.
static inline __attribute__((always_inline)) void finish_output(const Step *s, global T *dst, global const T *residual, int offset,
                                                                float16 value, int count)
{
    if (s->has_residual)
        value = ADD_RESIDUAL(s, value, count == 16 ? LOAD16(residual, offset) : load_lanes(residual, offset, count));
    value = activate16(value, s->low, s->high);
    if (count == 16)
        STORE16(dst, offset, value);
    else
        store_lanes(dst, offset, value, count);
}

// Outputs of one tile from M, `count` channels of a vector. Returns 0, and stores nothing, where sums are not finite.
static inline __attribute__((always_inline)) int transform_outputs(const Step *s, global T *dst, global const T *residual,
                                                                   WinogradTile tile, global const float *work, int plane, float16 bias,
                                                                   int channel, int count, int whole)
{
    const int height = s->out_height, width = s->out_width, depth = s->depth_out;
    const int at = nhwc_offset(tile.image, tile.y, tile.x, height, width, depth) + channel;
    float16 columns[4][6], zeros = (float16)0.0f;
#define FROM_WORK(i) WORK16(work + ((i) * 6 + j) * plane)
#define TO_PICTURE(j, value)                                                                                                 \
    if (whole || (tile.y + i < height && tile.x + (j) < width))                                                              \
        finish_output(s, dst, residual, at + (i * width + (j)) * depth, (value) + bias, count);
    _Pragma("unroll") for (int j = 0; j < 6; ++j)
    {
        TRANSFORM_OUTPUT(FROM_WORK, TO_COLUMN)
        // Of these two at least one is not finite if any of the column is not.
        zeros = fma(columns[0][j], (float16)0.0f, fma(columns[3][j], (float16)0.0f, zeros));
    }
    if (any(zeros != zeros))
        return 0;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) TRANSFORM_OUTPUT(FROM_ROW, TO_PICTURE)
    return 1;
}

// The same from the inputs, as convolve.h computes them.
static __attribute__((noinline)) void convolve_tile(const Step *s, global const T *src, global T *dst, global const T *residual,
                                                     WinogradTile tile, global const float16 *filters, float16 bias, int channel,
                                                     int count)
{
    const int depth = s->depth_in;
    for (int y = tile.y; y < min(tile.y + 4, s->out_height); ++y)
        for (int x = tile.x; x < min(tile.x + 4, s->out_width); ++x) {
            float16 sum = bias;
            for (int tap = 0; tap < 9; ++tap) {
                const int iy = y - s->padding_top + tap / 3, ix = x - s->padding_left + tap % 3;
                if (!inside(iy, s->height) || !inside(ix, s->width))
                    continue;
                const int at = nhwc_offset(tile.image, iy, ix, s->height, s->width, depth);
                for (int k = 0; k < depth; ++k)
                    sum = fma((float16)(LOAD(src, at + k)), filters[tap * depth + k], sum);
            }
            const int offset = nhwc_offset(tile.image, y, x, s->out_height, s->out_width, s->depth_out) + channel;
            finish_output(s, dst, residual, offset, sum, count);
        }
}

static __attribute__((noinline)) void tile_from_work(const Step *s, global const T *src, global T *dst, global const T *residual,
                                                      WinogradTile tile, global const float *work, int plane,
                                                      global const float16 *filters, float16 bias, int channel)
{
    const int count = min(16, s->depth_out - channel);
    int done;
    if (count == 16 && tile.y + 4 <= s->out_height && tile.x + 4 <= s->out_width)
        done = transform_outputs(s, dst, residual, tile, work, plane, bias, channel, 16, 1);
    else
        done = transform_outputs(s, dst, residual, tile, work, plane, bias, channel, count, 0);
    if (!done)
        convolve_tile(s, src, dst, residual, tile, filters, bias, channel, count);
}

// TILE_PIXELS rows of V, `step` apart, times the weights of one place and 32 channels, or 16, to rows of 32 of M.
// ahead: weights to fetch, so many bytes with each input channel.
static __attribute__((noinline)) void multiply_work32(global const float *v, int step, global const float16 *w, int depth,
                                                       global const uchar *ahead, int ahead_step, global float *m)
{
    global const float16 *w1 = w + depth;
    float16 sum0[TILE_PIXELS], sum1[TILE_PIXELS];
    PIXELS sum0[p] = sum1[p] = (float16)0.0f;
    for (int k = 0; k < depth; ++k, ahead += ahead_step) {
        const float16 x0 = w[k], x1 = w1[k];
        PREFETCH(ahead);
        PIXELS {
            const float16 value = (float16)(v[p * step + k]);
            sum0[p] = fma(value, x0, sum0[p]);
            sum1[p] = fma(value, x1, sum1[p]);
        }
    }
    PIXELS WORK16(m + p * 32) = sum0[p];
    PIXELS WORK16(m + p * 32 + 16) = sum1[p];
}

static __attribute__((noinline)) void multiply_work16(global const float *v, int step, global const float16 *w, int depth, global float *m)
{
    float16 sum[TILE_PIXELS];
    PIXELS sum[p] = (float16)0.0f;
    for (int k = 0; k < depth; ++k) {
        const float16 x0 = w[k];
        PIXELS sum[p] = fma((float16)(v[p * step + k]), x0, sum[p]);
    }
    PIXELS WORK16(m + p * 32) = sum[p];
}

// M of `count` tiles and a block of 32 channels, or 16 where `halves` is 1; the last tiles of a few are done twice.
static void multiply_places(global const float *v, int step, int plane, global const float16 *weights, int depth, int halves, int count,
                            global float *m, int sums_plane)
{
    const int ahead_step = min(64, ceil_divide(128, ceil_divide(count, TILE_PIXELS)));
    for (int place = 0; place < PLACES; ++place, weights += halves * depth, v += plane, m += sums_plane) {
        global const uchar *ahead = (global const uchar *)(weights + halves * depth); // every row fetches its part of the next place's
        for (int i = 0; i < count; i += TILE_PIXELS, ahead += (size_t)depth * ahead_step) {
            const int row = max(0, min(i, count - TILE_PIXELS));
            if (TILE_VECTORS > 1 && halves == 2)
                multiply_work32(v + row * step, step, weights, depth, ahead, ahead_step, m + row * 32);
            else
                for (int lanes = 0; lanes < halves; ++lanes)
                    multiply_work16(v + row * step, step, weights + lanes * depth, depth, m + row * 32 + lanes * 16);
        }
    }
}

// part: rows of TILE_PIXELS tiles, counted over all images; blocks of 32 channels.
static __attribute__((noinline)) void winograd(const Step *s, Part part, global const T *src, global T *dst, global const T *residual,
                                                global const uchar *constants, global float *work)
{
    const int depth = s->depth_in, depth_out = s->depth_out, at_once = s->tiles_at_once;
    const int step = ceil_divide(depth, 16) * 16 + 16, plane = at_once * step + 16, sums_plane = at_once * 32 + 16;
    global float *sums = work + PLACES * plane;
    const int tiles = s->batches * ceil_divide(s->out_height, 4) * ceil_divide(s->out_width, 4);
    const int first = part.x0 * TILE_PIXELS, all = min(part.x1 * TILE_PIXELS, tiles) - first, groups = ceil_divide(all, at_once);
    for (int group = 0; group < groups; ++group) {
        const int tile = first + all * group / groups, count = first + all * (group + 1) / groups - tile;
        for (int i = 0; i < count; ++i)
            tile_to_work(s, src, winograd_tile(s, tile + i), work + i * step, plane);
        for (int block = part.y0; block < part.y1; ++block) {
            const int halves = depth_out - block * 32 > 16 ? 2 : 1;
            global const float16 *weights = CONSTANT_AT(float16, s->weights) + (size_t)(2 * block) * PLACES * depth;
            multiply_places(work, step, plane, weights, depth, halves, count, sums, sums_plane);
            for (int i = 0; i < count; ++i)
                for (int lanes = 2 * block; lanes < 2 * block + halves; ++lanes)
                    tile_from_work(s, src, dst, residual, winograd_tile(s, tile + i), sums + i * 32 + lanes % 2 * 16, sums_plane,
                                   CONSTANT_AT(float16, s->multipliers) + (size_t)lanes * 9 * depth, CONSTANT_AT(float16, s->bias)[lanes],
                                   lanes * 16);
        }
    }
}

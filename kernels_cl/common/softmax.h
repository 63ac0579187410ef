// SPDX-License-Identifier: Apache-2.0
// softmax.h: what kernels of SOFTMAX of real numbers share.
// Defines  T, common/types.h, common/lanes.h, common/exponential.h (required, before inclusion)
// Gives    softmax_of_rows, by one thread; dst may be src
//          KEEP(dst, i, v), KEPT(dst, i, again), KEEP16, KEPT16: floats wait in the output for their sum; where T would round them, they
//          are computed again

#if T_IS_HALF
#define KEEP(dst, i, v) (void)(v)
#define KEEP16(dst, i, v) (void)(v)
#define KEPT(dst, i, again) (again)
#define KEPT16(dst, i, again) (again)
#else
#define KEEP(dst, i, v) STORE(dst, i, v)
#define KEEP16(dst, i, v) STORE16(dst, i, v)
#define KEPT(dst, i, again) LOAD(dst, i)
#define KEPT16(dst, i, again) LOAD16(dst, i)
#endif

#define EXPONENTIAL_OF(x) exp_below_zero16(beta * ((x) - largest))

// A row of fewer than sixteen.
static inline void softmax_lanes(float beta, global const T *src, global T *dst, int axis)
{
    float lanes[16], largest = -INFINITY, sum = 0.0f;
    for (int i = 0; i < 16; ++i)
        lanes[i] = i < axis ? LOAD(src, i) : 0.0f;
    for (int i = 0; i < axis; ++i)
        largest = fmax(largest, lanes[i]);
    const float16 parts = EXPONENTIAL_OF(vload16(0, lanes));
    vstore16(parts, 0, lanes);
    for (int i = 0; i < axis; ++i)
        sum += lanes[i];
    vstore16((1.0f / sum) * parts, 0, lanes);
    for (int i = 0; i < axis; ++i)
        STORE(dst, i, lanes[i]);
}

// Sixteen rows of fewer than sixteen, by the sums of softmax_lanes.
static inline void softmax_columns(float beta, global const T *src, global T *dst, int axis)
{
    float16 parts[15], largest = (float16)-INFINITY, sum = (float16)0.0f;
    for (int i = 0; i < axis; ++i) {
        const float16 column = column_of_rows(src + i, axis);
        largest = column > largest ? column : largest;
    }
    for (int i = 0; i < axis; ++i) {
        parts[i] = EXPONENTIAL_OF(column_of_rows(src + i, axis));
        sum += parts[i];
    }
    const float16 share = 1.0f / sum;
    for (int i = 0; i < axis; ++i)
        store_column(dst + i, axis, share * parts[i]);
}

// A row of sixteen or more. The last vector may overlap the one before it: it is read first, as the output may lie where the input does.
static inline void softmax_vectors(float beta, global const T *src, global T *dst, int axis)
{
    const int whole = axis & ~15, rest = axis - whole;
    const float16 end = LOAD16(src, axis - 16);
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float16 largest16 = end;
    for (int i = 0; i < whole; i += 16)
        largest16 = fmax(largest16, LOAD16(src, i));
    const float largest = largest_lane(largest16);
    float16 sum16 = (float16)0.0f;
    for (int i = 0; i < whole; i += 16) {
        const float16 part = EXPONENTIAL_OF(LOAD16(src, i));
        sum16 += part;
        KEEP16(dst, i, part);
    }
    float16 last = end;
    if (rest) {
        last = EXPONENTIAL_OF(end);
        sum16 += lane < 16 - rest ? (float16)0.0f : last;
    }
    const float share = 1.0f / sum_of_lanes(sum16);
    for (int i = 0; i < whole; i += 16)
        STORE16(dst, i, share * KEPT16(dst, i, EXPONENTIAL_OF(LOAD16(src, i))));
    if (rest)
        STORE16(dst, axis - 16, share * last);
}

static inline void softmax_of_rows(float beta, global const T *src, global T *dst, int axis, int rows)
{
    int row = 0;
    for (; axis < 16 && row + 16 <= rows; row += 16)
        softmax_columns(beta, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
    for (; axis < 16 && row < rows; ++row)
        softmax_lanes(beta, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
    for (; row < rows; ++row)
        softmax_vectors(beta, src + (size_t)row * axis, dst + (size_t)row * axis, axis);
}

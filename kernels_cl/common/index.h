// SPDX-License-Identifier: Apache-2.0
// index.h: positions in dense NHWC tensors.

// Element (b, y, x, 0) of a tensor [batches, height, width, depth].
static inline int nhwc_offset(int b, int y, int x, int height, int width, int depth)
{
    return ((b * height + y) * width + x) * depth;
}

// 1 where 0 <= i < size, by one comparison.
static inline int inside(int i, int size)
{
    return (uint)i < (uint)size;
}

static inline int ceil_divide(int a, int b)
{
    return (a + b - 1) / b;
}

// Element offsets in two tensors of a position counted over `sizes`, innermost last; unused outer sizes are 1.
static inline int2 offsets_in_two(int position, int8 sizes, int8 strides0, int8 strides1)
{
    int2 offsets = position % sizes.s7 * (int2)(strides0.s7, strides1.s7);
    position /= sizes.s7;
    offsets += position % sizes.s6 * (int2)(strides0.s6, strides1.s6);
    position /= sizes.s6;
    offsets += position % sizes.s5 * (int2)(strides0.s5, strides1.s5);
    position /= sizes.s5;
    if (position == 0)
        return offsets;
    offsets += position % sizes.s4 * (int2)(strides0.s4, strides1.s4);
    position /= sizes.s4;
    offsets += position % sizes.s3 * (int2)(strides0.s3, strides1.s3);
    position /= sizes.s3;
    offsets += position % sizes.s2 * (int2)(strides0.s2, strides1.s2);
    position /= sizes.s2;
    offsets += position % sizes.s1 * (int2)(strides0.s1, strides1.s1);
    return offsets + position / sizes.s1 * (int2)(strides0.s0, strides1.s0);
}

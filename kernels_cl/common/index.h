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

// SPDX-License-Identifier: Apache-2.0
// strided_copy.cl: copies a block of elements from one strided tensor into another.
// Maths    dst[dst_offset + sum i_k * dst_strides_k] = src[src_offset + sum i_k * src_strides_k], 0 <= i_k < sizes_k
// Tensors  src, dst: elements of T; up to 8 dimensions, unused ones have size 1; a source stride may be 0 or negative
// Units    offsets and strides in elements
// Defines  T: uchar | ushort | uint: an unsigned type of the element's size (required); bits are moved as they are
// Launch   global (>= product of sizes), local (64); one work-item per element; extra items return
// Exact    yes
#ifndef T
#error "strided_copy.cl: define T"
#endif

kernel void strided_copy(
    global const T *src, global T *dst, int src_offset, int dst_offset, int8 sizes, int8 src_strides, int8 dst_strides, int count)
{
    const int item = (int)get_global_id(0);
    if (item >= count) {
        return;
    }
    int rest = item, from = src_offset, to = dst_offset;
#define DIMENSION(k)                        \
    {                                       \
        const int i = rest % sizes.s##k;    \
        rest /= sizes.s##k;                 \
        from += i * src_strides.s##k;       \
        to += i * dst_strides.s##k;         \
    }
    DIMENSION(7)
    DIMENSION(6)
    DIMENSION(5)
    DIMENSION(4)
    DIMENSION(3)
    DIMENSION(2)
    DIMENSION(1)
    DIMENSION(0)
    dst[to] = src[from];
}

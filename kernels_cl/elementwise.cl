// SPDX-License-Identifier: Apache-2.0
// elementwise.cl: ADD, SUB, MUL, DIV of two broadcast tensors, with a fused activation.
// Maths    y = act(a op b); op by number: 0 ADD, 1 SUB, 2 MUL, 3 DIV
//          int: wraps; DIV rounds down, x / 0 = 0
//          quantised, qa = a - zeros.x, qb = b - zeros.y, M(x, f) = multiply_by_quantized_multiplier(x, f.x, f.y):
//          ADD, SUB: clamp(M(M(qa << left_shift, factor0) +- M(qb << left_shift, factor1), factor_out), low, high) + zeros.z
//          MUL:      clamp(M(qa * qb, factor_out), low, high) + zeros.z; no DIV
//          the same by float32 arithmetic where by_floats is not 0 (common/combine.h)
// Tensors  src0, src1, dst: elements of T. The output's dimensions with neighbours merged are sizes (outermost first, unused 1),
//          strides0 and strides1 those of the inputs in elements, 0 where broadcast; dst dense
//          elementwise: the innermost dimension is apart: `inner` elements, strides step0, step1 of 0 or 1
// Units    zeros: zero points (src0, src1, dst); factors (mantissa, exponent); low, high of COMPUTE_T: bounds of the activation,
//          quantised ones less zeros.z; by_floats, reals (common/combine.h): whether and by which numbers float32 arithmetic gives the
//          same integers; per_item: vectors, rows_per_item: rows that a work-item computes
// Defines  T: float | half | uchar | char | int (required); 8-bit types are quantised
//          GROUP: work-items of a group of VECTOR_KERNEL
// Launch   elementwise: global (>= ceil(ceil(inner / 16) / per_item), ceil(rows / rows_per_item)), local (GROUP, 1)
//          neighbouring work-items may write the same value to the same element
//          elementwise_broadcast: global (>= count), local (64); one work-item per element
//          extra items return
// Exact    quantised and int: yes, quantised as TFLite's reference; float: one operation
#ifndef T
#error "elementwise.cl: define T"
#endif

#include "common/types.h"
#include "common/quant.h"
#include "common/activation.h"

#include "common/combined.h"

// Element offsets in both inputs of a position counted over `sizes`.
static inline int2 offsets_of(int position, int4 sizes, int4 strides0, int4 strides1)
{
    int2 offsets = (int2)(0, 0);
#define DIMENSION(k)                                         \
    {                                                        \
        const int i = position % sizes.s##k;                 \
        position /= sizes.s##k;                              \
        offsets += i * (int2)(strides0.s##k, strides1.s##k); \
    }
    DIMENSION(3)
    DIMENSION(2)
    DIMENSION(1)
    DIMENSION(0)
    return offsets;
}

// A row's part as `value` says, of sixteen pairs a and b; a loop for each way, as a call for each vector takes as long as what it does.
#define ROW(value)                                                    \
    for (int i = first; i < last; i += 16) {                          \
        const int x = min(i, inner - 16);                             \
        const COMPUTE_T16 a = step0 ? LOAD16(src0, at.x + x) : same0; \
        const COMPUTE_T16 b = step1 ? LOAD16(src1, at.y + x) : same1; \
        STORE16(out, x, value);                                       \
    }

VECTOR_KERNEL void elementwise(global const T *src0, global const T *src1, global T *dst, int operation, COMPUTE_T low, COMPUTE_T high,
    int left_shift, int4 zeros, int2 factor0, int2 factor1, int2 factor_out, int by_floats, float4 reals, int4 sizes, int4 strides0,
    int4 strides1, int rows, int inner, int step0, int step1, int per_item, int rows_per_item)
{
    FLUSH_DENORMALS;
    const int first = (int)get_global_id(0) * per_item * 16;
    if (first >= inner)
        return;
    const int last = min(first + per_item * 16, inner);
    int row = (int)get_global_id(1) * rows_per_item;
    const int last_row = min(row + rows_per_item, rows);
    while (row < last_row) {
        int2 at = offsets_of(row, sizes, strides0, strides1);
        const int end = min(row + sizes.s3 - row % sizes.s3, last_row);
        if (inner < 16) {
            // Operands that go on without a gap, or begin anew with each row: rows are put together to vectors.
            const int flat0 = step0 && strides0.s3 == inner, flat1 = step1 && strides1.s3 == inner;
            int i = row * inner, phase = 0;
            if ((flat0 || strides0.s3 == 0) && (flat1 || strides1.s3 == 0) && (end - row) * inner >= 64) {
                COMPUTE_T pattern0[32], pattern1[32];
                for (int k = 0; k < 32; ++k) {
                    pattern0[k] = LOAD(src0, at.x + k % inner * step0);
                    pattern1[k] = LOAD(src1, at.y + k % inner * step1);
                }
                for (; i + 16 <= end * inner; i += 16, at += 16) {
                    const COMPUTE_T16 a = flat0 ? LOAD16(src0, at.x) : vload16(0, pattern0 + phase);
                    const COMPUTE_T16 b = flat1 ? LOAD16(src1, at.y) : vload16(0, pattern1 + phase);
                    STORE16(dst, i, combined16(a, b, operation, low, high, left_shift, zeros, factor0, factor1, factor_out, by_floats, reals));
                    phase = (phase + 16) % inner;
                }
                at -= i - row * inner;
            }
            for (; i < end * inner; ++i) {
                const int x = i - row * inner;
                const int2 from = at + x / inner * (int2)(strides0.s3, strides1.s3) + x % inner * (int2)(step0, step1);
                STORE(dst, i, combine(LOAD(src0, from.x), LOAD(src1, from.y), operation, low, high, left_shift, zeros, factor0, factor1, factor_out));
            }
            row = end;
            continue;
        }
        for (; row < end; ++row, at += (int2)(strides0.s3, strides1.s3)) {
            const COMPUTE_T16 same0 = (COMPUTE_T16)LOAD(src0, at.x), same1 = (COMPUTE_T16)LOAD(src1, at.y);
            global T *out = dst + row * inner;
#if TYPE_NUMBER == TYPE_NUMBER_uchar || TYPE_NUMBER == TYPE_NUMBER_char
            const int least = low + zeros.z, greatest = high + zeros.z;
            if (by_floats && operation == DO_MUL)
                ROW(activate_int16(multiplied_by_floats16(a - zeros.x, b - zeros.y, reals.x, reals.y, reals.z, zeros.z), least, greatest))
            else if (by_floats)
                ROW(activate_int16(added_by_floats16(a - zeros.x, b, reals.x, reals.y, reals.z), least, greatest))
            else
#endif
                ROW(combine16(a, b, operation, (COMPUTE_T16)low, (COMPUTE_T16)high, left_shift, zeros, factor0, factor1, factor_out))
        }
    }
}

kernel void elementwise_broadcast(global const T *src0, global const T *src1, global T *dst, int operation, COMPUTE_T low, COMPUTE_T high,
    int left_shift, int4 zeros, int2 factor0, int2 factor1, int2 factor_out, int by_floats, float4 reals, int4 sizes, int4 strides0,
    int4 strides1, int count)
{
    const int i = (int)get_global_id(0);
    if (i >= count)
        return;
    const int2 at = offsets_of(i, sizes, strides0, strides1);
    STORE(dst, i, combine(LOAD(src0, at.x), LOAD(src1, at.y), operation, low, high, left_shift, zeros, factor0, factor1, factor_out));
}

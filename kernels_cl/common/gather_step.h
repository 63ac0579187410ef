// SPDX-License-Identifier: Apache-2.0
// gather_step.h: GATHER and EMBEDDING_LOOKUP as steps of chain.cl.
// Maths    dst[o, n] = src[o, indices[n]], rows of elements; indices as place.h
// Tensors  src [outer, axis, depth_out], dst [outer, chosen, depth_out] of T, dense; residual: indices int [chosen]; third: fault int [1];
//          weights: Lookup
// Exact    yes

typedef struct {
    int axis, chosen, negative, number; // number: of the operation, for fault.h
} Lookup;

static void gather(const Step *s, Part part, global const T *src, global const int *indices, global T *dst, volatile global int *fault,
                   global const uchar *constants)
{
    const Lookup of = *CONSTANT_AT(Lookup, s->weights);
    const int depth = s->depth_out, last = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    for (int row = part.x0 * s->unit_pixels; row < last; ++row) {
        const int outer = row / of.chosen, place = place_of(indices[row - outer * of.chosen], of.axis, of.negative, fault, of.number);
        copy_row(src + ((size_t)outer * of.axis + place) * depth, depth, dst + (size_t)row * depth);
    }
}

// SPDX-License-Identifier: Apache-2.0
// roi.cl: ROI_ALIGN, ROI_POOLING: regions of a feature map brought to one size.
// Maths    a region is split into bins; roi_align: the mean of bilinear samples in a bin, at regular distances;
//          roi_pooling: the greatest element of a bin, zero_in where it lies outside the image
//          quantised samples: sum of (q - zero_in) * round(255 * weight), times in_scale / 255 / out_scale / number of samples
// Tensors  src of T, by strides (batch, y, x, channel); dst of T, by strides (roi, y, x, channel)
//          rois of ROI_T [rois, 4] (x1, y1, x2, y2); batch_index int [rois]
// Units    roi_scale: of ushort regions (zero point 0); ratios (y, x): pixels of the input per unit of a region
//          shape (batches, height, width, depth, out_height, out_width, rows of samples, columns of samples; 0: by the bin's size)
//          scale: in_scale / 255 / out_scale
// Defines  T: float | half | uchar | char (required); ROI_T: T, or ushort for 8-bit types (required)
// Launch   global (>= rois * out_height * out_width * depth), local (64); one work-item per element, channels fastest
//          extra items return
// Exact    quantised: weights as float32 operations rounded one by one, sums exact
// Errors   batches and regions outside the input and corners out of order are complained of (common/fault.h) and cut to the input
#ifndef T
#error "roi.cl: define T"
#endif
#ifndef ROI_T
#error "roi.cl: define ROI_T"
#endif

#include "common/types.h"
#include "common/real.h"
#include "common/fault.h"

#if T_IS_FLOAT
#define REGION(i) LOAD(rois, i)
#define ZERO 0.0f
#define IS_NAN(v) isnan(v)
#else
#define REGION(i) ((float)rois[i] * roi_scale)
#define ZERO zero_in
#define IS_NAN(v) 0
#endif

// Whether a region lies inside an input and its corners are in order; fails for NaN.
static inline int is_region(float4 corners, float2 ratios, int height, int width)
{
    const float x1 = corners.x * ratios.y, y1 = corners.y * ratios.x, x2 = corners.z * ratios.y, y2 = corners.w * ratios.x;
    return x1 >= 0.0f && x1 <= x2 && x2 <= (float)width && y1 >= 0.0f && y1 <= y2 && y2 <= (float)height;
}

// Start and end of a region along one axis, in pixels; NaN becomes 0.
static inline float2 extent(float start, float end, float ratio, int size)
{
    const float low = clamp(fmax(start * ratio, 0.0f), 0.0f, (float)size);
    return (float2)(low, clamp(fmax(end * ratio, low), low, (float)size));
}

typedef struct {
    int lower, upper;
    float weight; // of the upper one
} Sample;

static inline Sample sample_at(float position, int size)
{
    const int below = (int)floor(position), outside = below >= size - 1;
    const int lower = outside ? size - 1 : below;
    const Sample sample = {lower, min(lower + 1, size - 1), outside ? 0.0f : position - (float)below};
    return sample;
}

typedef struct {
    float first, distance; // position of the first sample of a bin, distance of the next
    int count;
} Samples;

static inline Samples samples_of(float2 extent, int bin, int bins, int wanted)
{
    const float step = divide(fmax(extent.y - extent.x, 1.0f), (float)bins);
    const int count = wanted ? wanted : (int)ceil(step);
    const float distance = divide(step, (float)count);
    const Samples samples = {step * (float)bin + extent.x + distance * 0.5f, distance, count};
    return samples;
}

#if T_IS_FLOAT
#define SUM_T float
#define WEIGHT(y, x) ((y) * (x))
#define MEAN(sum, count) divide(sum, (float)(count))
#else
#define SUM_T long
#define WEIGHT(y, x) ((int)round(divide((y) * (x), divide(1.0f, 255.0f))))
#define MEAN(sum, count) mean_of(sum, count, scale, zero_out)

// sum * real / count in fixed point, rounded twice as multiply_by_quantized_multiplier does; real >= 0, |sum| < count * 2^16.
static inline int mean_of(long sum, int count, float real, int zero)
{
    const int spare = max(0, 16 - (int)clz(count - 1)); // a sum of more than 2^16 samples is halved so often
    int exponent;
    const float fraction = frexp(ldexp(divide(real, (float)count), spare), &exponent);
    const int mantissa = exponent < -31 ? 0 : (int)(fraction * 16777216.0f) << 7;
    const int left = clamp(exponent, 0, 30), right = exponent < -31 ? 0 : max(-exponent, 0);
    const long halved = spare ? (sum + (1L << (spare - 1))) >> spare : sum;
    const long scaled = left ? (long)(int)((uint)halved << left) : halved; // wraps as the reference does
    const long product = (scaled * mantissa + (1L << 30)) >> 31, mask = (1L << right) - 1;
    const long code = (product >> right) + ((product & mask) > (mask >> 1) + (product < 0)) + zero;
    return T_IS_SIGNED ? (int)clamp(code, -128L, 127L) : (int)clamp(code, 0L, 255L);
}
#endif

#define ROI_PARAMETERS                                                                                                  \
    global const T *src, global const ROI_T *rois, global const int *batch_index, global T *dst, int4 src_strides,      \
        int4 dst_strides, int8 shape, int count, float roi_scale, float2 ratios, int zero_in, int zero_out, float scale,      \
        global int *fault, int number

// What both kernels begin with: bounds check, element of dst, extents of its region.
#define BEGIN                                                                                                              \
    const int item = (int)get_global_id(0);                                                                                \
    if (item >= count)                                                                                                     \
        return;                                                                                                            \
    const int height = shape.s1, width = shape.s2, depth = shape.s3, out_height = shape.s4, out_width = shape.s5;          \
    const int c = item % depth, ox = item / depth % out_width, oy = item / depth / out_width % out_height;                 \
    const int roi = item / depth / out_width / out_height;                                                                 \
    const int batch = batch_index[roi];                                                                                    \
    const float4 corners = (float4)(REGION(roi * 4), REGION(roi * 4 + 1), REGION(roi * 4 + 2), REGION(roi * 4 + 3));       \
    if (batch < 0 || batch >= shape.s0 || !is_region(corners, ratios, height, width))                                      \
        complain(fault, number);                                                                                           \
    const int image = clamp(batch, 0, shape.s0 - 1) * src_strides.x + c * src_strides.w;                                   \
    const int to = roi * dst_strides.x + oy * dst_strides.y + ox * dst_strides.z + c * dst_strides.w;                      \
    const float2 columns = extent(corners.x, corners.z, ratios.y, width);                                                  \
    const float2 rows = extent(corners.y, corners.w, ratios.x, height);

kernel void roi_align(ROI_PARAMETERS)
{
    BEGIN
    const Samples down = samples_of(rows, oy, out_height, shape.s6), across = samples_of(columns, ox, out_width, shape.s7);
    SUM_T sum = 0;
    for (int j = 0; j < down.count; ++j) {
        const Sample y = sample_at(down.first + down.distance * (float)j, height);
        const int lower = image + y.lower * src_strides.y, upper = image + y.upper * src_strides.y;
        for (int i = 0; i < across.count; ++i) {
            const Sample x = sample_at(across.first + across.distance * (float)i, width);
            const int left = x.lower * src_strides.z, right = x.upper * src_strides.z;
            COMPUTE_T sample = (LOAD(src, lower + left) - ZERO) * WEIGHT(1.0f - y.weight, 1.0f - x.weight);
            sample += (LOAD(src, lower + right) - ZERO) * WEIGHT(1.0f - y.weight, x.weight);
            sample += (LOAD(src, upper + left) - ZERO) * WEIGHT(y.weight, 1.0f - x.weight);
            sample += (LOAD(src, upper + right) - ZERO) * WEIGHT(y.weight, x.weight);
            sum += sample;
        }
    }
    STORE(dst, to, MEAN(sum, down.count * across.count));
}

// First element of a bin and the one after its last, cut to the input.
static inline int2 bin_of(float2 extent, int bin, int bins, int size)
{
    const float start = round(extent.x);
    const float step = divide(fmax(round(extent.y) - start + 1.0f, 1.0f), (float)bins);
    const float first = fmin(floor(step * (float)bin + start), (float)size);
    return (int2)((int)first, (int)fmin(ceil(step * (float)(bin + 1) + start), (float)size));
}

kernel void roi_pooling(ROI_PARAMETERS)
{
    BEGIN
    const int2 down = bin_of(rows, oy, out_height, height), across = bin_of(columns, ox, out_width, width);
    if (down.x >= down.y || across.x >= across.y) {
        STORE(dst, to, ZERO);
        return;
    }
    COMPUTE_T greatest = LOAD(src, image + down.x * src_strides.y + across.x * src_strides.z);
    for (int y = down.x; y < down.y; ++y)
        for (int x = across.x; x < across.y; ++x) {
            const COMPUTE_T value = LOAD(src, image + y * src_strides.y + x * src_strides.z);
            greatest = value > greatest || IS_NAN(value) ? value : greatest;
        }
    STORE(dst, to, greatest);
}

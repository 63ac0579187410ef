// SPDX-License-Identifier: Apache-2.0
// channel.h: what the sum of an output channel's bias and products becomes.
// Defines  T, QUANTIZED, common/types.h, quant.h, activation.h, centred.h (required, before inclusion)
//          FLAGS: the flags of every launch, where they are known
// Gives    flags: BOUNDED: low and high are not infinite, ADDS_RESIDUAL: a residual is added before the activation (float types)
//          ROUNDS_ONCE: by multiply_rounding_once, else twice, ROUNDS_AT_ONCE: both at once, quant.h says when,
//          ROUNDS_DOWN: and no result is below the zero point, or it rounds once (quantised)
//          Channel, READ_CHANNEL(to, channel): its bias and scale
//          RESULT(sum, Channel, added): what the sum becomes, `added` the residual
// Wants    bias, multipliers, shifts, zeros, low, high: as the kernels' arguments; flags: as FLAGS, where that is defined
#define BOUNDED 128
#define ADDS_RESIDUAL 256
#define ROUNDS_ONCE 1024
#define ROUNDS_AT_ONCE 2048
#define ROUNDS_DOWN 4096

// Channels are filled member by member: of structures that are put into a private array whole, rusticl of Mesa 25.0 loses some.
#if QUANTIZED && defined(FLAGS) && (FLAGS & ROUNDS_AT_ONCE)
typedef struct {
    int bias;
    AtOnce scale;
} Channel;
#define READ_CHANNEL(to, channel)                                                                                      \
    ((to).bias = bias[channel], (to).scale.multiplier = multipliers[channel], (to).scale.right = -shifts[channel] - 1, \
        (to).scale.added = at_once_added(0, multipliers[channel], shifts[channel], zeros.z, FLAGS & ROUNDS_ONCE))

static inline int result(int sum, Channel channel, int flags, int zero_out, int low, int high)
{
    return activate_int(FLAGS & ROUNDS_DOWN ? scale_down_at_once(sum, channel.scale) : scale_at_once(sum, channel.scale), low, high);
}
#elif QUANTIZED
typedef struct {
    int bias, multiplier, shift;
} Channel;
#define READ_CHANNEL(to, channel) \
    ((to).bias = bias[channel], (to).multiplier = multipliers[channel], (to).shift = shifts[channel])

static inline int result(int sum, Channel channel, int flags, int zero_out, int low, int high)
{
    const int value = flags & ROUNDS_ONCE ? multiply_rounding_once(sum, channel.multiplier, channel.shift)
                                          : multiply_by_quantized_multiplier(sum, channel.multiplier, channel.shift);
    return activate_int(value + zero_out, low, high);
}
#else
typedef struct {
    COMPUTE_T bias;
} Channel;
#define READ_CHANNEL(to, channel) ((to).bias = LOAD_BIAS(bias, channel))

static inline COMPUTE_T result(COMPUTE_T sum, int flags, COMPUTE_T added, COMPUTE_T low, COMPUTE_T high)
{
    if (flags & ADDS_RESIDUAL)
        sum = ROUND(sum) + added;
#if defined(FLAGS)
    if (!(FLAGS & BOUNDED))
        return sum;
#endif
#if T_IS_FLOAT
    return activate(sum, low, high);
#else
    return activate_int(sum, low, high);
#endif
}
#endif
#if QUANTIZED
#define RESULT(sum, channel, added) result(sum, channel, flags, zeros.z, low, high)
#else
#define RESULT(sum, channel, added) result(sum, flags, added, low, high)
#endif

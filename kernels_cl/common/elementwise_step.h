// SPDX-License-Identifier: Apache-2.0
// elementwise_step.h: operations element by element as a step of chain.cl, several of them while the values are in the first cache.
// Maths    value = operand (LOAD), then for each further instruction value = act(f(value, operand)), or f(operand, value) if reversed; dst = value
//          float: FUNCTIONS; quantised: combine.h, TABLE: value = table[byte of value] (with VNNI bytes.h's form)
// Tensors  dst [batches * out_height * out_width, depth_out] of T, dense; as_one_row: all rows that a task has are one long row
//          operands of T: element (row / divide % modulo) * row_stride + column * step of src, residual, or of a constant
// Units    place: of a constant or table, in 64 bytes from the instructions on; low, high: bounds of the activation, as combine.h has them
//          alpha: of ELU; zeros to offset: common/combine.h
//          weights: the instructions (gpu_driver/chain/elementwise.py), so many as `instructions` says
// Needs    the first instruction is LOAD
// Exact    quantised: yes; float: each operation rounded to T; EXP, LOGISTIC, TANH, ELU as common/exponential.h

#define WIDTH 256 // elements computed at once
#define EVERY_VALUE(...) for (int v = 0; v < vectors; ++v) { __VA_ARGS__; }

// As gpu_driver/chain/elementwise.py numbers them; those up to DIVIDE as common/combine.h.
#define DIVIDE 3
#define GREATER 4
#define LESSER 5
#define LOAD_OPERAND 6
#define TABLE 7
#define CLAMP 8
#define MAGNITUDE 9
#define NEGATIVE 10
#define EXPONENTIAL 11
#define SQUARE_ROOT 12
#define RECIPROCAL_ROOT 13
#define SIGMOID 14
#define HYPERBOLIC_TANGENT 15
#define HARD_SWISH 16
#define EXPONENTIAL_LINEAR 17

#define FROM_SOURCE 1
#define FROM_RESIDUAL 2
#define FROM_VALUE 3
#define FROM_CONSTANT 4

typedef struct {
    int function, operand, place, reversed;
    int divide, modulo, row_stride, step;
    COMPUTE_T low, high;
    float alpha;
    int left_shift;
    int zeros[4], factor0[2], factor1[2], factor_out[2]; // zeros of a, b, result
    int by_floats;
    float real0, real1, offset;
    int is_bounded; // float: whether low and high are finite
    int unused[5];
} Instruction;

// The part of a row that is computed at once: `vectors` from column `first` on, the last of them at column `last`, over the one before it
// if need be; one of fewer lanes if the row is that short.
typedef struct {
    global const T *src, *residual;
    global const uchar *constants; // the instructions, and what follows
    int row, first, last, vectors, lanes;
} Columns;

static inline void load_columns(const Columns *at, global const T *from, COMPUTE_T16 *values)
{
    const int before = at->vectors - 1;
    if (at->lanes < 16) {
        values[0] = load_lanes(from, 0, at->lanes);
        return;
    }
    for (int v = 0; v < before; ++v)
        values[v] = LOAD16(from, at->first + 16 * v);
    values[before] = LOAD16(from, at->last);
}

static inline void store_columns(const Columns *at, global T *to, const COMPUTE_T16 *values)
{
    const int before = at->vectors - 1;
    if (at->lanes < 16) {
        store_lanes(to, 0, values[0], at->lanes);
        return;
    }
    for (int v = 0; v < before; ++v)
        STORE16(to, at->first + 16 * v, values[v]);
    STORE16(to, at->last, values[before]);
}

// What an instruction reads beside the values.
static inline void load_operand(const Columns *at, global const Instruction *i, COMPUTE_T16 *values)
{
    const int vectors = at->vectors;
    global const T *from = i->operand == FROM_SOURCE ? at->src
        : i->operand == FROM_RESIDUAL                ? at->residual
                                                     : (global const T *)(at->constants + (size_t)i->place * 64);
    from += (size_t)(at->row / i->divide % i->modulo) * i->row_stride;
    if (i->step) {
        load_columns(at, from, values);
    } else {
        const COMPUTE_T16 same = (COMPUTE_T16)LOAD(from, 0);
        EVERY_VALUE(values[v] = same)
    }
}

#if T_IS_FLOAT
#define FUNCTION(number, ...)                                      \
    case number:                                                   \
        EVERY_VALUE(const float16 x = values[v]; values[v] = __VA_ARGS__) \
        break;

static inline void apply(const Columns *at, global const Instruction *i, int vectors, float16 *values, const float16 *others)
{
    switch (i->function) {
        FUNCTION(ADD, x + others[v])
        FUNCTION(SUB, i->reversed ? others[v] - x : x - others[v])
        FUNCTION(MUL, x * others[v])
        FUNCTION(DIVIDE, i->reversed ? others[v] / x : x / others[v])
        FUNCTION(GREATER, x != x || x > others[v] ? x : others[v])
        FUNCTION(LESSER, x != x || x < others[v] ? x : others[v])
        FUNCTION(MAGNITUDE, fabs(x))
        FUNCTION(NEGATIVE, -x)
        FUNCTION(EXPONENTIAL, exp_16(x))
        FUNCTION(SQUARE_ROOT, sqrt(x))
        FUNCTION(RECIPROCAL_ROOT, 1.0f / sqrt(x))
        FUNCTION(SIGMOID, logistic_16(x))
        FUNCTION(HYPERBOLIC_TANGENT, tanh_16(x))
        FUNCTION(HARD_SWISH, x * (clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f))
        FUNCTION(EXPONENTIAL_LINEAR, (x < 0.0f ? (float16)0.0f : x) + fmin(i->alpha * expm1_16(x), 0.0f))
    default:
        break;
    }
    if (i->is_bounded) {
        const float low = i->low, high = i->high;
        EVERY_VALUE(values[v] = activate16(values[v], low, high))
    }
#if T_IS_HALF
    EVERY_VALUE(values[v] = ROUND16(values[v]))
#endif
}
#else
static inline void apply(const Columns *at, global const Instruction *i, int vectors, int16 *values, const int16 *others)
{
    const int low = i->low, high = i->high, is_reversed = i->reversed;
    if (i->function == TABLE) {
        int16 bytes[WIDTH / 64];
        EVERY_VALUE(((T16 *)bytes)[v] = WIDEN(values[v], T16))
#if VNNI
        global const int16 *table = (global const int16 *)(at->constants + (size_t)i->place * 64);
        for (int k = 0; k < ceil_divide(vectors, 4); ++k)
            bytes[k] = look_up_bytes(table, bytes[k]);
#else
        global const uchar *table = at->constants + (size_t)i->place * 64;
        for (int k = 0; k < 16 * vectors; ++k)
            ((uchar *)bytes)[k] = table[((uchar *)bytes)[k]];
#endif
        EVERY_VALUE(values[v] = WIDEN(((T16 *)bytes)[v], int16))
    } else if (i->function == CLAMP) {
        EVERY_VALUE(values[v] = activate_int16(values[v], low, high))
    } else if (i->by_floats) {
        const float factor0 = i->real0, factor1 = i->real1, offset = i->offset;
        const int zero0 = i->zeros[0], zero_out = i->zeros[2];
        const int own_zero = i->zeros[is_reversed], other_zero = i->zeros[!is_reversed];
        if (i->function == MUL)
            EVERY_VALUE(values[v] = activate_int16(
                            multiplied_by_floats16(values[v] - own_zero, others[v] - other_zero, factor0, offset, zero_out), low, high))
        else
            EVERY_VALUE(const int16 a = is_reversed ? others[v] : values[v]; const int16 b = is_reversed ? values[v] : others[v];
                        values[v] = activate_int16(added_by_floats16(a - zero0, b, factor0, factor1, offset), low, high))
    } else {
        const int4 zeros = (int4)(i->zeros[0], i->zeros[1], i->zeros[2], 0);
        const int2 factor0 = (int2)(i->factor0[0], i->factor0[1]), factor1 = (int2)(i->factor1[0], i->factor1[1]);
        const int2 factor_out = (int2)(i->factor_out[0], i->factor_out[1]);
        EVERY_VALUE(const int16 a = is_reversed ? others[v] : values[v]; const int16 b = is_reversed ? values[v] : others[v];
                    values[v] = combine16(a, b, i->function, (int16)low, (int16)high, i->left_shift, zeros, factor0, factor1, factor_out))
    }
}
#endif

static inline void compute(const Columns *at, global const Instruction *program, int instructions, global T *dst)
{
    const int vectors = at->vectors;
    COMPUTE_T16 values[WIDTH / 16], others[WIDTH / 16];
    load_operand(at, program, values);
    for (int i = 1; i < instructions; ++i) {
        if (program[i].operand == FROM_VALUE)
            EVERY_VALUE(others[v] = values[v])
        else if (program[i].operand != 0)
            load_operand(at, program + i, others);
        apply(at, program + i, vectors, values, others);
    }
    store_columns(at, dst, values);
}

static void elementwise(const Step *s, Part part, global const T *src, global T *dst, global const T *residual, global const uchar *constants)
{
    global const uchar *own = CONSTANT_AT(uchar, s->weights);
    const int end = min(part.x1 * TILE_PIXELS, s->batches * s->out_height * s->out_width), begin = part.x0 * TILE_PIXELS;
    const int rows = s->as_one_row ? end - begin : 1, length = rows * s->depth_out;
    for (int row = begin; row < end; row += rows)
        for (int x = 0; x < length; x += WIDTH) {
            const int vectors = ceil_divide(min(WIDTH, length - x), 16);
            const Columns at = {src, residual, own, row, x, min(x + 16 * vectors, length) - 16, vectors, min(length, 16)};
            compute(&at, (global const Instruction *)own, s->instructions, dst + (size_t)row * s->depth_out);
        }
}

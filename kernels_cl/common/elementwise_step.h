// SPDX-License-Identifier: Apache-2.0
// elementwise_step.h: operations element by element as a step of chain.cl, several of them while the values are in the first cache.
// Maths    each instruction: values[to] = operand (LOAD), or act(f(values[from], operand)), or act(f(operand, values[from])) if reversed;
//          dst = what the last one makes
//          float: FUNCTIONS; quantised: combine.h, prelu.h, TABLE: value = table[byte of value] (with DOT4 bytes.h's form), PAIRS: pairs.h
// Tensors  dst [batches * out_height * out_width, depth_out] of T, dense; at_once: 0, or all rows that a task has are one long row of which
//          so many elements are computed at once: WIDTH, or, where these are no whole vectors, whole rows
//          operands of T: element (row / divide % modulo) * row_stride + column * step of src, residual, third, or of a constant
// Units    place: of a constant or table, in 64 bytes from the instructions on; of VALUE and NARROW: which of the values; of
//          POLYNOMIAL: of its coefficients, so many as `terms`, the highest first; of src, residual and third: how many elements behind their
//          begin they are read; table: place of that of PAIRS
//          repeated: of a row that is the same for all rows: which of the task's own copies has it, row after row, so often that
//          at_once elements follow each of its own, counted from 1; 0 for other operands
//          low, high: bounds of the activation, as combine.h has them
//          alpha: of ELU; what MULTIPLY_ADD adds to products; zeros to offset: common/combine.h
//          truth values, which comparisons make and SELECT reads: 1 and 0; table: of SELECT: which of the values it takes where there is a 0
//          weights: the instructions (gpu_driver/chain/elementwise.py), so many as `instructions` says
//          SUM_OF_ROW: values[to] = the sums of the rows of values[from] / alpha; narrow, as such values are: a vector for each row, all lanes
//          alike
// Needs    values are made before they are read; SUM_OF_ROW: at_once 0, rows of 16 to WIDTH_OF_ROW elements
// Exact    quantised: yes; float: each operation rounded to T, products to which MULTIPLY_ADD and POLYNOMIAL add only then; sums by
//          lane; EXP, LOGISTIC, GATE, TANH, ELU as common/exponential.h, LOG as common/logarithm.h, SIN as common/sine.h

#if T_IS_FLOAT
#define WIDTH 512 // elements computed at once, and of rows that are apart
#define WIDTH_OF_ROW 1024
#else
#define WIDTH 2048
#define WIDTH_OF_ROW WIDTH
#endif
#define LINES (WIDTH / 16)
#define REGISTERS 4 // these and the widths as gpu_driver/chain/elementwise.py has them
#define COPIED_WIDTHS 13
#define EVERY_VALUE(...) for (int v = 0; v < vectors; ++v) { __VA_ARGS__; }
// For what takes an instruction or two; vectors are a multiple of four.
#define EVERY_FOUR(...)                                  \
    for (int v4 = 0; v4 < vectors; v4 += 4)              \
        _Pragma("unroll") for (int v = v4; v < v4 + 4; ++v) { __VA_ARGS__; }

// These and KIND_, RESCALE_, ROUND_ as gpu_driver/chain/kinds.py numbers them; the first three are in common/combine.h.
#define DO_DIV 3
#define DO_MAXIMUM 4
#define DO_MINIMUM 5
#define DO_LOAD 6
#define DO_TABLE 7
#define DO_CLAMP 8
#define DO_ABS 9
#define DO_NEG 10
#define DO_EXP 11
#define DO_SQRT 12
#define DO_RSQRT 13
#define DO_LOGISTIC 14
#define DO_TANH 15
#define DO_HARD_SWISH 16
#define DO_ELU 17
#define DO_PRELU 18
#define DO_PAIRS 19
#define DO_SUM_OF_ROW 20
#define DO_MULTIPLY_ADD 21
#define DO_GATE 22
#define DO_POLYNOMIAL 23
#define DO_LOG 24
#define DO_FLOOR 25
#define DO_SIN 26
#define DO_EQUAL 27
#define DO_NOT_EQUAL 28
#define DO_GREATER 29
#define DO_GREATER_EQUAL 30
#define DO_SELECT 31

#define FROM_NOTHING 0
#define FROM_SOURCE 1
#define FROM_RESIDUAL 2
#define FROM_VALUE 3
#define FROM_CONSTANT 4
#define FROM_THIRD 5
#define FROM_NARROW 6

typedef struct {
    int function, operand, place, reversed;
    int divide, modulo, row_stride, step;
    COMPUTE_T low, high;
    float alpha;
    int left_shift;
    int zeros[3], terms, factor0[2], factor1[2], factor_out[2]; // zeros of a, b, result
    int by_floats;
    float real0, real1, offset;
    int is_bounded; // float: whether low and high are finite
    int from, to;
    int repeated, table;
    int is_narrow;
} Instruction;

// What is computed at once: the same part of `rows` rows from `row` on, `of_row` vectors of each from column `first` on, the last of them at
// column `last`, over the one before it if need be; one of fewer `lanes` if the part is that short. After the last of all `vectors`, values
// have copies of it up to a multiple of four.
// copies: of rows that are repeated, copy_length elements apart, of which `phase` come before `first`; none unless it is a long row
typedef struct {
    global const T *src, *residual, *third;
    const KEPT_T16 *copies;
    global const uchar *constants; // the instructions, and what follows
    int row, rows, first, last, of_row, vectors, lanes, copy_length, phase;
} Columns;

typedef struct __attribute__((packed)) {
    KEPT_T16 value;
} UnalignedKept;

static inline int padded(int vectors)
{
    return (vectors + 3) & ~3;
}

static inline void pad(const Columns *at, KEPT_T16 *values)
{
    for (int v = at->vectors; v < padded(at->vectors); ++v)
        values[v] = values[at->vectors - 1];
}

static inline int is_gapless(const Columns *at)
{
    return at->of_row % 4 == 0 && at->last == at->first + 16 * (at->of_row - 1);
}

static inline void load_row(const Columns *at, global const T *from, KEPT_T16 *values)
{
    const int vectors = at->of_row, before = vectors - 1;
    if (is_gapless(at)) {
        EVERY_FOUR(values[v] = load_kept(from, at->first + 16 * v, 16))
        return;
    }
    for (int v = 0; v < before; ++v)
        values[v] = load_kept(from, at->first + 16 * v, 16);
    values[before] = load_kept(from, at->lanes < 16 ? at->first : at->last, at->lanes);
}

static inline void store_row(const Columns *at, global T *to, const KEPT_T16 *values)
{
    const int vectors = at->of_row, before = vectors - 1;
    if (is_gapless(at)) {
        EVERY_FOUR(store_kept(to, at->first + 16 * v, values[v], 16))
        return;
    }
    for (int v = 0; v < before; ++v)
        store_kept(to, at->first + 16 * v, values[v], 16);
    store_kept(to, at->lanes < 16 ? at->first : at->last, values[before], at->lanes);
}

static inline global const T *operand_of(const Columns *at, global const Instruction *i)
{
    return i->operand == FROM_SOURCE ? at->src + i->place
        : i->operand == FROM_RESIDUAL ? at->residual + i->place
        : i->operand == FROM_THIRD    ? at->third + i->place
                                      : (global const T *)(at->constants + (size_t)i->place * 64);
}

// Where an instruction reads for a row. Divisions take longer than what else is done for an operand.
static inline global const T *row_of(global const Instruction *i, global const T *from, int row)
{
    const int own = i->divide == 1 && row < i->modulo ? row : i->modulo == 1 ? 0 : row / i->divide % i->modulo;
    return from + (size_t)own * i->row_stride;
}

// Where the elements that are computed at once lie as values do, so that they need no copy: `rows` from `row` on, `stride` apart.
// Returns 0 where they do not. Address spaces are one on a CPU.
static inline KEPT_T16 *in_place(const Columns *at, global const T *row, int stride)
{
#if !T_IS_HALF
    const int has_gaps = at->last != at->first + 16 * (at->of_row - 1) || at->lanes < 16 || (at->rows > 1 && stride != 16 * at->of_row);
    const size_t place = (size_t)(row + at->first);
    return has_gaps || at->vectors % 4 || place % sizeof(KEPT_T16) ? 0 : (KEPT_T16 *)place;
#else
    return 0;
#endif
}

static inline const KEPT_T16 *operand_in_place(const Columns *at, global const Instruction *i)
{
    if (at->copies != 0 && i->repeated && is_gapless(at) && at->lanes == 16)
        return at->copies + ((i->repeated - 1) * at->copy_length + at->phase) / 16;
    const int is_own = at->rows == 1 || (i->divide == 1 && at->row + at->rows <= i->modulo);
    if (!i->step || i->repeated || !is_own)
        return 0;
    return in_place(at, row_of(i, operand_of(at, i), at->row), i->row_stride);
}

// What an instruction reads beside the values: a vector for every one of theirs (returns 1), or one for all (0).
static inline int load_operand(const Columns *at, global const Instruction *i, KEPT_T16 *values)
{
    global const T *from = operand_of(at, i);
    if (at->copies != 0 && i->repeated) {
        const KEPT_T *copy = (const KEPT_T *)at->copies + (i->repeated - 1) * at->copy_length + at->phase;
        const int before = at->vectors - 1, last = at->lanes < 16 ? 0 : at->last - at->first;
        for (int v = 0; v < before; ++v)
            values[v] = ((const UnalignedKept *)(copy + 16 * v))->value;
        values[before] = ((const UnalignedKept *)(copy + last))->value;
        pad(at, values);
        return 1;
    }
    if (!i->step && (at->rows == 1 || i->modulo == 1)) {
        values[0] = (KEPT_T16)(KEPT_T)LOAD(row_of(i, from, at->row), 0);
        return 0;
    }
    for (int r = 0; r < at->rows; ++r, values += at->of_row) {
        global const T *row = row_of(i, from, at->row + r);
        if (i->step) {
            load_row(at, row, values);
        } else {
            const KEPT_T16 value = (KEPT_T16)(KEPT_T)LOAD(row, 0);
            for (int v = 0; v < at->of_row; ++v)
                values[v] = value;
        }
    }
    pad(at, values - at->vectors);
    return 1;
}

#if T_IS_FLOAT
// sums: each over `divisor`; may be the values
static inline void sums_of_rows(const Columns *at, float divisor, const float16 *values, float16 *sums)
{
    const int before = at->of_row - 1, depth = at->last + 16;
    // The last vector of a row begins with what the one before has, too.
    const int16 is_new = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) >= (int16)(16 * at->of_row - depth);
    for (int r = 0; r < at->rows; ++r, values += at->of_row) {
        float16 lanes = select((float16)0.0f, values[before], is_new), more[3] = {(float16)0.0f, (float16)0.0f, (float16)0.0f};
        int v = 0;
        for (; v + 4 <= before; v += 4) { // one sum alone would wait for each addition
            lanes += values[v];
            more[0] += values[v + 1];
            more[1] += values[v + 2];
            more[2] += values[v + 3];
        }
        for (; v < before; ++v)
            lanes += values[v];
        lanes = (lanes + more[0]) + (more[1] + more[2]);
        const float8 eight = lanes.lo + lanes.hi;
        const float4 four = eight.lo + eight.hi;
        sums[r] = ROUND16((float16)((four.x + four.y + (four.z + four.w)) / divisor));
    }
    for (int r = at->rows; r < padded(at->rows); ++r)
        sums[r] = sums[at->rows - 1];
}

// As load_operand.
static inline int widen_rows(const Columns *at, const float16 *narrow, float16 *values)
{
    if (at->rows == 1) {
        values[0] = narrow[0];
        return 0;
    }
    for (int r = 0; r < at->rows; ++r, values += at->of_row)
        for (int v = 0; v < at->of_row; ++v)
            values[v] = narrow[r];
    pad(at, values - at->vectors);
    return 1;
}
#endif

// a, b: the operands in the order of the operation
#if T_IS_FLOAT
// Horner's scheme, of four vectors at a time.
static inline void polynomial(global const float *terms, int count, int vectors, const float16 *a, float16 *to)
{
    for (int v = 0; v < vectors; v += 4) {
        const float16 x0 = a[v], x1 = a[v + 1], x2 = a[v + 2], x3 = a[v + 3];
        float16 y0 = (float16)terms[0], y1 = y0, y2 = y0, y3 = y0;
        for (int n = 1; n < count; ++n) {
            const float16 term = (float16)terms[n];
            y0 = ROUND16(y0 * x0 + term);
            y1 = ROUND16(y1 * x1 + term);
            y2 = ROUND16(y2 * x2 + term);
            y3 = ROUND16(y3 * x3 + term);
        }
        to[v] = y0;
        to[v + 1] = y1;
        to[v + 2] = y2;
        to[v + 3] = y3;
    }
}

// a_is_one, b_is_one: whether one vector stands for all; c: what SELECT takes where a is 0
#define PAIR(number, ...)                                                           \
    case number:                                                                    \
        if (a_is_one) {                                                             \
            const float16 x = a[0];                                                 \
            EVERY_FOUR(const float16 y = b[v]; to[v] = __VA_ARGS__)                 \
        } else if (b_is_one) {                                                      \
            const float16 y = b[0];                                                 \
            EVERY_FOUR(const float16 x = a[v]; to[v] = __VA_ARGS__)                 \
        } else {                                                                    \
            EVERY_FOUR(const float16 x = a[v]; const float16 y = b[v]; to[v] = __VA_ARGS__) \
        }                                                                           \
        break;
#define SIMPLE(number, ...)                                     \
    case number:                                                \
        EVERY_FOUR(const float16 x = a[v]; to[v] = __VA_ARGS__) \
        break;
#define TRUTH(...) ((__VA_ARGS__) ? (float16)1.0f : (float16)0.0f)
static inline void apply(const Columns *at, global const Instruction *i, int vectors, const float16 *a, const float16 *b, const float16 *c,
                         int a_is_one, int b_is_one, float16 *to)
{
    const float alpha = i->alpha;
    switch (i->function) {
        PAIR(DO_ADD, x + y)
        PAIR(DO_SUB, x - y)
        PAIR(DO_MUL, x * y)
        PAIR(DO_DIV, x / y)
        PAIR(DO_MULTIPLY_ADD, x * y + alpha)
        PAIR(DO_MAXIMUM, x != x || x > y ? x : y)
        PAIR(DO_MINIMUM, x != x || x < y ? x : y)
        PAIR(DO_PRELU, x >= 0.0f ? x : x * y)
        PAIR(DO_EQUAL, TRUTH(x == y))
        PAIR(DO_NOT_EQUAL, TRUTH(x != y))
        PAIR(DO_GREATER, TRUTH(x > y))
        PAIR(DO_GREATER_EQUAL, TRUTH(x >= y))
        PAIR(DO_SELECT, x != 0.0f ? y : c[v])
        SIMPLE(DO_CLAMP, x)
        SIMPLE(DO_ABS, fabs(x))
        SIMPLE(DO_NEG, -x)
        SIMPLE(DO_FLOOR, floor(x))
        SIMPLE(DO_SIN, sine(x))
        SIMPLE(DO_EXP, exp_16(x))
        SIMPLE(DO_LOG, log_16(x))
        SIMPLE(DO_SQRT, sqrt(x))
        SIMPLE(DO_RSQRT, 1.0f / sqrt(x))
        SIMPLE(DO_LOGISTIC, logistic_16(x))
        SIMPLE(DO_TANH, tanh_16(x))
        SIMPLE(DO_HARD_SWISH, x * (clamp(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f))) // a division takes ten times as long
        SIMPLE(DO_ELU, (x < 0.0f ? (float16)0.0f : x) + fmin(alpha * expm1_16(x), 0.0f))
    case DO_GATE:
        EVERY_FOUR(to[v] = gated_16(b[v], a[v]))
        break;
    case DO_POLYNOMIAL:
        polynomial((global const float *)(at->constants + (size_t)i->place * 64), i->terms, vectors, a, to);
        break;
    default:
        break;
    }
    if (i->is_bounded) {
        const float low = i->low, high = i->high;
        EVERY_FOUR(to[v] = activate16(to[v], low, high))
    }
#if T_IS_HALF
    EVERY_FOUR(to[v] = ROUND16(to[v]))
#endif
}
#else
static inline void apply(const Columns *at, global const Instruction *i, int vectors, const T16 *a, const T16 *b, T16 *to)
{
    const int low = i->low, high = i->high;
    if (i->function == DO_TABLE) {
        look_up_row(at->constants + (size_t)i->place * 64, (global const T *)(size_t)a, (global T *)(size_t)to, 16 * vectors);
    } else if (i->function == DO_PAIRS) {
        global const T *table = (global const T *)(at->constants + (size_t)i->table * 64);
        EVERY_VALUE(to[v] = WIDEN(paired16(WIDEN(a[v], int16), WIDEN(b[v], int16), table), T16))
    } else if (i->function == DO_CLAMP) {
        const T16 least = (T16)(T)low, most = (T16)(T)high;
        EVERY_FOUR(to[v] = min(max(a[v], least), most))
    } else if (i->function == DO_MAXIMUM) {
        EVERY_FOUR(to[v] = max(a[v], b[v]))
    } else if (i->function == DO_MINIMUM) {
        EVERY_FOUR(to[v] = min(a[v], b[v]))
    } else if (i->by_floats) {
        const float4 reals = (float4)(i->real0, i->real1, i->offset, 0.0f);
        const int4 zeros = (int4)(i->zeros[0], i->zeros[1], i->zeros[2], 0);
#define BY_FLOATS(operation)                                                                                                             \
    EVERY_FOUR(const int16 y = combined_by_floats16(WIDEN(a[v], int16) - zeros.x, WIDEN(b[v], int16), operation, zeros, reals); \
               to[v] = WIDEN(activate_int16(y, low, high), T16))
        if (i->function == DO_MUL)
            BY_FLOATS(DO_MUL)
        else
            BY_FLOATS(DO_ADD)
    } else {
        const int4 zeros = (int4)(i->zeros[0], i->zeros[1], i->zeros[2], 0);
        const int2 factor0 = (int2)(i->factor0[0], i->factor0[1]), factor1 = (int2)(i->factor1[0], i->factor1[1]);
        const int2 factor_out = (int2)(i->factor_out[0], i->factor_out[1]);
#define BY_INTEGERS(...) EVERY_VALUE(const int16 x = WIDEN(a[v], int16); const int16 y = WIDEN(b[v], int16); to[v] = WIDEN(__VA_ARGS__, T16))
        if (i->function == DO_PRELU)
            BY_INTEGERS(rectified16(x, y, zeros, (int4)(factor0, factor1), low, high))
        else
            BY_INTEGERS(combine16(x, y, i->function, (int16)low, (int16)high, i->left_shift, zeros, factor0, factor1, factor_out))
    }
}
#endif

// depth: of the rows of dst
static inline void compute(const Columns *at, global const Instruction *program, int instructions, global T *dst, int depth)
{
    KEPT_T16 rooms[REGISTERS][WIDTH_OF_ROW / 16], others[WIDTH_OF_ROW / 16];
    const KEPT_T16 *values[REGISTERS] = {rooms[0], rooms[1], rooms[2], rooms[3]}; // or where they are in memory
    for (int n = 0; n < instructions; ++n) {
        global const Instruction *i = program + n;
        const KEPT_T16 *own = values[i->from], *other = own;
        KEPT_T16 *result = rooms[i->to];
#if T_IS_FLOAT
        const int vectors = padded(i->is_narrow ? at->rows : at->vectors);
        if (i->function == DO_SUM_OF_ROW) {
            sums_of_rows(at, i->alpha, own, result);
            values[i->to] = result;
            continue;
        }
#else
        const int vectors = padded(at->vectors);
#endif
        int is_one = 0; // whether a vector stands for all
        if (i->operand == FROM_VALUE) {
            other = values[i->place];
        } else if (i->operand != FROM_NOTHING) {
            KEPT_T16 *copy = i->function == DO_LOAD ? result : others;
#if T_IS_FLOAT
            if (i->operand == FROM_NARROW) {
                other = copy;
                is_one = !widen_rows(at, values[i->place], copy);
            } else
#endif
                other = operand_in_place(at, i);
            if (other == 0) {
                is_one = !load_operand(at, i, copy);
                other = copy;
            }
        }
        if (i->function == DO_LOAD) {
            if (is_one)
                EVERY_FOUR(result[v] = result[0])
            values[i->to] = other;
            continue;
        }
        KEPT_T16 *straight = n == instructions - 1 && !i->is_narrow ? in_place(at, dst, depth) : 0;
        if (straight != 0)
            result = straight;
        const int is_reversed = i->reversed;
#if T_IS_FLOAT
        apply(at, i, vectors, is_reversed ? other : own, is_reversed ? own : other, values[i->table], is_one && is_reversed,
              is_one && !is_reversed, result);
#else
        if (is_one)
            EVERY_FOUR(others[v] = others[0])
        apply(at, i, vectors, is_reversed ? other : own, is_reversed ? own : other, result);
#endif
        if (straight != 0)
            return;
        values[i->to] = result;
    }
    for (int r = 0; r < at->rows; ++r)
        store_row(at, dst + (size_t)r * depth, values[program[instructions - 1].to] + r * at->of_row);
}

// Copies the rows that are the same for all rows, as often as they are needed at once.
static inline void copy_repeated(const Columns *at, global const Instruction *program, int instructions, int depth, KEPT_T *copies)
{
    for (int n = 0; n < instructions; ++n) {
        if (!program[n].repeated)
            continue;
        global const T *from = operand_of(at, program + n);
        KEPT_T *copy = copies + (program[n].repeated - 1) * at->copy_length;
        for (int e = 0; e < at->copy_length; e += depth)
            for (int c = 0; c < min(depth, at->copy_length - e); ++c)
                copy[e + c] = (KEPT_T)LOAD(from, c);
    }
}

// dst may be what an instruction reads, element by element.
static __attribute__((noinline)) void elementwise(const Step *s, Part part, global uchar *const *buffers, global const uchar *constants)
{
    global const T *src = (global const T *)(buffers[s->src] + (size_t)s->src_offset * 64);
    global const T *residual = (global const T *)(buffers[s->residual] + (size_t)s->residual_offset * 64);
    global const T *third = (global const T *)(buffers[s->third] + (size_t)s->third_offset * 64);
    global T *dst = (global T *)(buffers[s->dst] + (size_t)s->dst_offset * 64);
    global const uchar *own = CONSTANT_AT(uchar, s->weights);
    global const Instruction *program = (global const Instruction *)own;
    const int depth = s->depth_out, end = min(part.x1 * s->unit_pixels, s->batches * s->out_height * s->out_width);
    const int begin = part.x0 * s->unit_pixels, left = part.y0 * s->unit_channels, right = min(part.y1 * s->unit_channels, depth);
    const int is_long = s->at_once && right - left == depth;
    const int last = is_long ? (end - begin) * depth : right, width = is_long ? s->at_once : WIDTH_OF_ROW;
#if !T_IS_FLOAT
    if (s->instructions == 2 && program[1].function == DO_TABLE) {
        for (int row = begin; row < end; row += is_long ? end - begin : 1)
            look_up_row(own + (size_t)program[1].place * 64, src + (size_t)row * depth + left, dst + (size_t)row * depth + left, last - left);
        return;
    }
#endif
    Columns at = {src, residual, third, 0, own, begin, 1, 0, 0, 0, 0, 0, 0, 0};
    KEPT_T16 copies[COPIED_WIDTHS * LINES];
    if (is_long) {
        at.copy_length = (depth + width + 31) & ~15; // up to 16 elements more are loaded
        copy_repeated(&at, program, s->instructions, depth, (KEPT_T *)copies);
        at.copies = copies;
    }
    // Instructions are looked at once for all rows that fit.
    const int together = is_long || right - left < 16 ? 1 : max(1, LINES / ceil_divide(right - left, 16));
    for (; at.row < end; at.row += is_long ? end - begin : at.rows) {
        at.rows = min(together, end - at.row);
        for (int x = left; x < last; x += width) {
            const int next = min(x + width, last), count = next - x;
            at.first = x;
            at.last = next - 16;
            at.of_row = ceil_divide(count, 16);
            at.vectors = at.rows * at.of_row;
            at.lanes = min(count, 16);
            at.phase = is_long ? x % depth : 0;
            compute(&at, program, s->instructions, dst + (size_t)at.row * depth, depth);
        }
    }
}

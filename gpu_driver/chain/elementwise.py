# SPDX-License-Identifier: Apache-2.0
"""Operations element by element as steps of a chain: programs of instructions.

An instruction makes of sixteen values, and what it reads beside them, the next sixteen (common/elementwise_step.h). An
operation alone is LOAD and the operation; `joining` puts those of neighbours together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import byte_tables
from gpu_driver.chain import byte_programs
from gpu_driver.chain.kinds import From, Function, Kind
from gpu_driver.chain.readings import LEAST_ROW, readings_of, real_type
from gpu_driver.chain.step import Instruction, Reading, Step, Walk, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.step import Memory
    from gpu_driver.kernel import Kernel
    from gpu_driver.launch import Launch
    from nn_runtime.operand import Array, Dimensions

WORDS = 32
"""Of an instruction."""
_FIELDS = (
    *("function", "operand", "place", "reversed", "divide", "modulo", "row_stride", "step"),
    *("low", "high", "alpha", "left_shift"),
    *("zero0", "zero1", "zero_out", "terms", "multiplier0", "exponent0", "multiplier1", "exponent1"),
    *("multiplier_out", "exponent_out", "by_floats", "real0", "real1", "offset"),
    *("is_bounded", "from", "to", "repeated", "table", "is_narrow"),
)
_ALIGNMENT = 64
_VECTOR = 16
WIDTH, _WIDTH_OF_BYTES = 512, 2048
"""Elements that are computed at once, as common/elementwise_step.h has them."""
_WIDTH_OF_ROW = 1024
"""Real numbers of a row that are computed at once where rows are apart, as that has it."""
_EVEN = 64
"""Elements of the vectors that it goes through without looking at each."""
_COPIED_WIDTHS = 13
"""Room for copies of rows that are the same for all rows, as that has it."""
_ROWS_WORTH_COPIES = 16
"""Else such a row is read where it lies, if a few rows are too wide to be one."""
_MOST_ELEMENTS_OF_A_ROW = 16384
REGISTERS = 4
"""Values that an instruction can begin with, as common/elementwise_step.h has them."""
MEMORIES = (From.SOURCE, From.RESIDUAL, From.THIRD)


def step_of(
    kernel: Kernel,
    output: BoundOperand,
    operands: Sequence[BoundOperand],
    function: Function,
    low: float,
    high: float,
    numbers: Mapping[str, int | float] | None = None,
    table: Array | None = None,
    exact: Callable[[Array, Array], Array] | None = None,
) -> Step | None:
    """Return the step of one operation on one or two operands; None where the kernel does not take it.

    table: of 256 elements for TABLE, 256 x 256 for PAIRS. low, high: bounds of the result. exact: as of an Instruction.
    """
    readings = readings_of(operands, output, kernel)
    variable = [at for at, one in enumerate(operands) if not one.is_constant]
    if readings is None or not variable:
        return None
    walks = readings.walks
    first = variable[0]
    program = [Instruction(Function.LOAD, From.SOURCE, walks[first])]
    others = [at for at in range(len(operands)) if at != first]
    residual: BoundOperand | None = None
    if not others:
        program.append(Instruction(function, constant=table, low=low, high=high, numbers=numbers or {}, exact=exact))
    for at in others:
        other, which = operands[at], From.RESIDUAL
        if other is operands[first]:
            which = From.VALUE
        elif other.is_constant:
            which = From.CONSTANT
        else:
            residual = other
        data = readings.constants[at] if which == From.CONSTANT else table
        program.append(Instruction(function, which, walks[at], data, at < first, low, high, numbers or {}, exact=exact))
    memories = (operands[first],) if residual is None else (operands[first], residual)
    return program_step(kernel, output, memories, tuple(program), readings.shape)


def select_step(
    kernel: Kernel, output: BoundOperand, condition: BoundOperand, choices: Sequence[BoundOperand]
) -> Step | None:
    """Return the step of SELECT: the first choice where the condition holds, else the second; as `step_of`.

    The condition is of truth values (`truths.py`), or a constant.
    """
    first, second = choices
    is_turned = condition.is_constant and first.is_constant  # so that it does not begin with a constant
    if not condition.is_constant:
        loaded, read = (condition, second), first
    else:
        loaded, read = (second, first) if is_turned else (first, second), condition
    operands = *loaded, read
    readings = readings_of(operands, output, kernel)
    if readings is None or loaded[0].is_constant:
        return None
    walks, (_, other, given) = readings.walks, readings.constants
    if is_turned and given is not None:
        given = 1 - given
    memories = tuple(dict.fromkeys(one for one in operands if not one.is_constant))
    places = [From.CONSTANT if one.is_constant else MEMORIES[memories.index(one)] for one in operands]
    program = (
        Instruction(Function.LOAD, places[0], walks[0]),
        Instruction(Function.LOAD, places[1], walks[1], other, target=1),
        Instruction(
            Function.SELECT,
            *(places[2], walks[2], given),
            reversed=read is condition,
            low=-math.inf,
            high=math.inf,
            alternative=1,
        ),
    )
    return program_step(kernel, output, memories, program, readings.shape)


def sum_of_row(operand: Dimensions, divisor: int) -> tuple[Instruction, ...]:
    """Return the instructions that make of every row of an operand its sum over a divisor; none for longer rows."""
    rows, depth = math.prod(operand[:-1]), operand[-1]
    if not LEAST_ROW <= depth <= _WIDTH_OF_ROW:
        return ()
    walk = Walk(rows, depth, rows, modulo=rows, step=1)
    return (
        Instruction(Function.LOAD, From.SOURCE, walk),
        Instruction(Function.SUM_OF_ROW, numbers={"alpha": float(divisor)}),
    )


def has_sum(program: Sequence[Instruction]) -> bool:
    """Whether a program needs all of a row at once."""
    return any(one.function == Function.SUM_OF_ROW for one in program)


def joinable(launch: Launch, step: Step | None) -> Launch:
    """Return the launch that a step may take the place of; it has memory of its own then, as all in a chain."""
    return launch if step is None else replace(launch, steps=(step,), in_place=False)


def program_step(
    kernel: Kernel,
    output: Memory,
    memories: tuple[Memory, ...],
    program: tuple[Instruction, ...],
    shape: tuple[int, int],
) -> Step | None:
    """Return a step; None where rows are too short for vectors and cannot be put together, or too long to be shared."""
    shape, program = _vector_in_rows(shape, program)
    rows, depth = shape
    operations = sum(one.function != Function.LOAD for one in program)
    program = _simplified(program, kernel)
    at_once = _at_once(program, depth, WIDTH if _byte_type(kernel) is None else _WIDTH_OF_BYTES)
    if depth > _MOST_ELEMENTS_OF_A_ROW or not (at_once or depth >= LEAST_ROW):
        return None
    source, residual, third = (*memories, None, None)[: len(MEMORIES)]
    if source is None:
        raise ValueError("a program of constants alone")
    reads, reads_residual, reads_third = (_reading(program, which) for which in MEMORIES)
    return Step(
        kernel,
        Kind.ELEMENTWISE,
        source,
        output,
        residual=residual,
        geometry=rows_of(rows, depth),
        constants=(_packed(program, at_once, of_bytes=("DOT4", 0) not in kernel.defines),),
        values={"instructions": len(program), "at_once": at_once},
        flops=rows * depth * operations,
        bytes_moved=sum(memory.size_bytes for memory in (*memories, output)),
        reads=reads,
        reads_residual=reads_residual,
        program=program,
        third=third,
        reads_third=reads_third,
    )


def negation_step(kernel: Kernel, output: BoundOperand, source: BoundOperand) -> Step | None:
    """Return the step of LOGICAL_NOT, whose truth values are 1 and 0; as `step_of`."""
    *outer, depth = output.dimensions or (1,)
    rows, zero = math.prod(outer), np.zeros(1, real_type(kernel))
    program = (
        Instruction(Function.LOAD, From.SOURCE, Walk(rows, depth, rows, modulo=rows, step=1)),
        Instruction(Function.EQUAL, From.CONSTANT, Walk(1, 1, rows), zero, low=-math.inf, high=math.inf),
    )
    return None if source.is_constant else program_step(kernel, output, (source,), program, (rows, depth))


def in_shape(step: Step, shape: tuple[int, int]) -> Step | None:
    """Return an element-wise step that goes through other rows of as many elements; None for one that knows its own."""
    program = _in_rows(step.program, shape)
    if step.kind != Kind.ELEMENTWISE or program is None or math.prod(step.output_shape) != math.prod(shape):
        return None
    memories = tuple(one for one in (step.source, step.residual, step.third) if one is not None)
    found = program_step(step.kernel, step.output, memories, program, shape)
    return found and replace(found, operations=step.operations)


def _vector_in_rows(
    shape: tuple[int, int], program: tuple[Instruction, ...]
) -> tuple[tuple[int, int], tuple[Instruction, ...]]:
    """Return rows that cores can share, and the program for them, of one long row that knows elements only."""
    rows, size = shape
    depth = next((depth for depth in range(WIDTH, LEAST_ROW - 1, -1) if size % depth == 0), size)
    in_rows = _in_rows(program, (size // depth, depth)) if rows == 1 and size > WIDTH else None
    return (shape, program) if in_rows is None else ((size // depth, depth), in_rows)


def _in_rows(program: Sequence[Instruction], shape: tuple[int, int]) -> tuple[Instruction, ...] | None:
    """Return a program of elements in their order and of single numbers for other rows; None for another program."""
    rows, depth = shape
    result = []
    for one in program:
        walk = one.walk
        if walk is not None and walk.is_plain:
            walk = Walk(rows, depth, rows, modulo=rows, step=1)
        elif walk is not None and walk.is_scalar:
            walk = Walk(1, 1, rows)
        elif walk is not None or one.function == Function.SUM_OF_ROW:
            return None
        result.append(replace(one, walk=walk))
    return tuple(result)


def _reading(program: Sequence[Instruction], which: int) -> Reading | None:
    """Return what all instructions read of an operand."""
    readings = {one.walk.reading for one in program if one.operand == which and one.walk is not None}
    if len(readings) <= 1:
        return next(iter(readings), None)
    one = next(iter(readings))
    return Reading(one.rows, one.depth)


def _simplified(program: tuple[Instruction, ...], kernel: Kernel) -> tuple[Instruction, ...]:
    """Return a table in the place of what makes of a byte another."""
    dtype = _byte_type(kernel)
    if dtype is None or [one.function for one in program] == [Function.LOAD, Function.TABLE]:
        return program
    table = byte_programs.table_of(program, dtype)
    return program if table is None else (program[0], Instruction(Function.TABLE, constant=table))


def _byte_type(kernel: Kernel) -> np.dtype[np.generic] | None:
    """Return the type of a kernel's elements if they are bytes."""
    return {"uchar": np.dtype(np.uint8), "char": np.dtype(np.int8)}.get(str(dict(kernel.defines)["T"]))


def _at_once(program: Sequence[Instruction], depth: int, width: int) -> int:
    """Return how many elements of one long row of all rows are computed at once; 0 where rows must be apart."""
    others = [one for one in program if one.walk is not None and not (one.walk.is_plain or one.walk.is_scalar)]
    if has_sum(program):
        return 0
    if not others:
        return width
    walks = [one.walk for one in others if one.walk is not None and one.walk.is_same_row]
    is_wide = 2 * depth > width
    if len(walks) < len(others) or (is_wide and (depth % _EVEN == 0 or walks[0].out_rows < _ROWS_WORTH_COPIES)):
        return 0
    even = math.lcm(depth, _EVEN)
    whole = width // even * even or (0 if is_wide else width // depth * depth)
    at_once = width if depth % _VECTOR == 0 else whole
    copied = len(walks) * ((depth + at_once + 31) // _VECTOR * _VECTOR)
    return at_once if copied <= _COPIED_WIDTHS * width else 0


def _packed(program: Sequence[Instruction], at_once: int, *, of_bytes: bool) -> Array:
    """Return the bytes of a program and of what its instructions read, each part 64-byte aligned."""
    parts: list[Array] = []
    table = np.zeros((len(program), WORDS), np.int32)
    end = table.nbytes
    copies = 0
    for row, one in zip(table, program, strict=True):
        walk = one.walk or Walk(1, 1, 1)
        values: dict[str, int | float] = {
            "function": one.function,
            "operand": one.operand,
            "reversed": int(one.reversed),
            "divide": walk.divide,
            "modulo": walk.modulo,
            "row_stride": walk.depth,
            "step": walk.step,
            "low": one.low,
            "high": one.high,
            "is_bounded": int(one.is_bounded),
            "from": one.start,
            "to": one.target,
            "place": (one.other if one.operand in (From.VALUE, From.NARROW) else 0) if walk.part is None else walk.part,
            "table": one.alternative,
            "is_narrow": int(one.is_narrow),
            "terms": one.constant.size if one.constant is not None and one.function == Function.POLYNOMIAL else 0,
            **one.numbers,
        }
        if one.constant is not None:
            values["table" if one.function == Function.PAIRS else "place"] = end // _ALIGNMENT
            is_table = of_bytes and one.function == Function.TABLE
            constant = byte_tables.packed(one.constant) if is_table else one.constant
            flat = np.ascontiguousarray(constant).reshape(-1).view(np.uint8)
            parts += [flat, np.zeros(-flat.size % _ALIGNMENT, np.uint8)]
            end += -(-flat.size // _ALIGNMENT) * _ALIGNMENT
        if at_once and walk.is_same_row and not (walk.is_plain or walk.is_scalar):
            copies += 1
            values["repeated"] = copies
        row[:] = words(values, _FIELDS)
    return np.concatenate([table.reshape(-1).view(np.uint8), *parts])


def words(values: Mapping[str, float], fields: Sequence[str]) -> list[int]:
    """Return the bits of fields, 0 where there is no value: an int as it is, a float as float32.

    Raises ValueError for a value that no field has.
    """
    unknown = values.keys() - set(fields)
    if unknown:
        raise ValueError(f"no field of a kernel's table is called {', '.join(sorted(unknown))}")
    return [_word(values.get(name, 0)) for name in fields]


def _word(value: float) -> int:
    is_real = isinstance(value, float | np.floating)
    return int(np.float32(value).view(np.int32)) if is_real else int(value)

# SPDX-License-Identifier: Apache-2.0
"""Operations element by element as steps of a chain: programs of instructions, put together where one feeds the next.

An instruction makes of sixteen values, and what it reads beside them, the next sixteen (common/elementwise_step.h). A
operation alone is LOAD and the operation. Neighbours that nobody else reads anything of but the last one's result are
one step: values stay in registers and the first cache instead of going through memory. The mean of a row, and what is
made of it, are narrow values, a vector for each row, so that a normalisation is one step.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain import byte_programs
from gpu_driver.chain.byte_tables import parts as parts_of
from gpu_driver.chain.step import (
    CONSTANT,
    ELEMENTWISE,
    MEAN,
    NARROW,
    NOTHING,
    RESIDUAL,
    SOURCE,
    THIRD,
    VALUE,
    Instruction,
    Reading,
    Step,
    Walk,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.step import Memory
    from gpu_driver.launch import Kernel, Launch
    from nn_runtime.operand import Array, Dimensions

LOAD, TABLE = byte_programs.LOAD, byte_programs.TABLE
ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, CLAMP = 0, 1, 2, 3, 4, 5, 8
ABS, NEG, EXP, SQRT, RSQRT, LOGISTIC, TANH, HARD_SWISH, ELU, PRELU, PAIRS = 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19
MEAN_OF_ROW, MULTIPLY_ADD = 20, 21
WORDS = 32
"""Of an instruction."""
_FIELDS = (
    *("function", "operand", "place", "reversed", "divide", "modulo", "row_stride", "step"),
    *("low", "high", "alpha", "left_shift"),
    *("zero0", "zero1", "zero_out", "unused", "multiplier0", "exponent0", "multiplier1", "exponent1"),
    *("multiplier_out", "exponent_out", "by_floats", "real0", "real1", "offset"),
    *("is_bounded", "from", "to", "repeated", "table", "is_narrow"),
)
_ALIGNMENT = 64
_LEAST_ROW = 16
_WIDTH = 512
"""Elements that are computed at once, as common/elementwise_step.h has them."""
_MOST_ELEMENTS_OF_A_ROW = 16384
_MOST_CONSTANT_BYTES = 1 << 20
_MOST_INSTRUCTIONS = 64
_REGISTERS = 4
"""Values that an instruction can begin with, as common/elementwise_step.h has them."""
_COPIES = 8
"""Rows that are the same for all rows, and are copied, as that has them."""
_MEMORIES = (SOURCE, RESIDUAL, THIRD)


def walk_of(operand: Dimensions, output: Dimensions) -> Walk | None:
    """Return how an operand is read where it is broadcast to the output, None if it takes more than a Walk."""
    *outer, depth = output or (1,)
    dims = (1,) * (len(outer) + 1 - len(operand)) + operand
    if len(dims) != len(outer) + 1:
        return None
    own = [at for at, size in enumerate(dims[:-1]) if size > 1]
    first, last = (own[0], own[-1] + 1) if own else (0, 0)
    if list(dims[first:last]) != list(outer[first:last]):
        return None
    rows = math.prod(outer)
    modulo, divide = math.prod(outer[first:last]), math.prod(outer[last:]) if own else 1
    is_vector = dims[-1] == depth and math.prod(dims) > 1
    return Walk(math.prod(dims[:-1]), dims[-1], rows, divide, modulo, int(is_vector))


def step_of(
    kernel: Kernel,
    output: BoundOperand,
    operands: Sequence[BoundOperand],
    function: int,
    low: float,
    high: float,
    numbers: Mapping[str, int | float] | None = None,
    table: Array | None = None,
    exact: Callable[[Array, Array], Array] | None = None,
) -> Step | None:
    """Return the step of one operation on one or two operands; None where the kernel does not take it.

    table: of 256 elements for TABLE, 256 x 256 for PAIRS. low, high: bounds of the result. exact: as of an Instruction.
    """
    *outer, depth = output.dimensions or (1,)
    walks = [walk_of(one.dimensions, output.dimensions) for one in operands]
    variable = [at for at, one in enumerate(operands) if not one.is_constant]
    if not variable or any(walk is None for walk in walks):
        return None
    first = variable[0]
    program = [Instruction(LOAD, SOURCE, walks[first])]
    others = [at for at in range(len(operands)) if at != first]
    residual: BoundOperand | None = None
    if not others:
        program.append(Instruction(function, constant=table, low=low, high=high, numbers=numbers or {}, exact=exact))
    for at in others:
        other, which = operands[at], RESIDUAL
        if other is operands[first]:
            which = VALUE
        elif other.is_constant:
            which = CONSTANT
        else:
            residual = other
        data = other.constant if which == CONSTANT else table
        if data is not None and data.nbytes > _MOST_CONSTANT_BYTES:
            return None
        program.append(Instruction(function, which, walks[at], data, at < first, low, high, numbers or {}, exact=exact))
    memories = (operands[first],) if residual is None else (operands[first], residual)
    return _step(kernel, output, memories, tuple(program), (math.prod(outer), depth))


def mean_of_row(operand: Dimensions) -> tuple[Instruction, ...]:
    """Return the instructions that make of every row of an operand its mean; none where its rows do not fit at once."""
    rows, depth = math.prod(operand[:-1]), operand[-1]
    if not _LEAST_ROW <= depth <= _WIDTH:
        return ()
    return Instruction(LOAD, SOURCE, Walk(rows, depth, rows, modulo=rows, step=1)), Instruction(MEAN_OF_ROW)


def has_mean(program: Sequence[Instruction]) -> bool:
    """Whether a program needs all of a row at once."""
    return any(one.function == MEAN_OF_ROW for one in program)


def joinable(launch: Launch, step: Step | None) -> Launch:
    """Return the launch that a step may take the place of; it has memory of its own then, as all in a chain."""
    return launch if step is None else replace(launch, steps=(step,), in_place=False)


def put_together(steps: Sequence[Step], keys: Mapping[Memory, int], inner: frozenset[int]) -> tuple[Step, ...]:
    """Make one step of neighbours of which nobody else reads anything but what the last one makes.

    keys, inner: as chain/launches.py has them.
    """
    users = _Users(steps, keys, inner)
    result: list[Step] = []
    at = 0
    while at < len(steps):
        end = users.end_of_row(at)
        joined = None
        while end > at + 1:
            joined = _joined(steps[at:end], keys) if users.are_alone(at, end) else None
            if joined is not None:
                break
            end -= 1
        result.append(joined or steps[at])
        at = max(end, at + 1)
    return tuple(result)


class _Users:
    """Who uses the memories of a chain's steps."""

    def __init__(self, steps: Sequence[Step], keys: Mapping[Memory, int], inner: frozenset[int]) -> None:
        self._steps = steps
        self._outputs = [keys[step.output] for step in steps]
        self._inner = inner
        self._written = Counter(self._outputs)
        self._spans: dict[int, tuple[int, int]] = {}
        for at, step in enumerate(steps):
            for memory in step.memories:
                first, _ = self._spans.setdefault(keys[memory], (at, at))
                self._spans[keys[memory]] = first, at

    def end_of_row(self, at: int) -> int:
        """Return the end of neighbours from `at` on that go through equal rows, or through what they made of a row."""
        shape, end, means = _rows_gone_through(self._steps[at]), at, False
        while end < min(len(self._steps), at + _MOST_INSTRUCTIONS):
            step = self._steps[end]
            is_narrow = means and step.output_shape == (shape[0], 1)
            if not step.program or not (is_narrow or _rows_gone_through(step) == shape):
                break
            means |= step.kind == MEAN
            end += 1
        return end

    def are_alone(self, at: int, end: int) -> bool:
        """Whether nobody but steps at .. end - 1 uses what those before the last make, each something of its own."""
        spans = [self._spans[key] for key in self._outputs[at : end - 1]]
        return all(
            key in self._inner and self._written[key] == 1 and at <= first and last < end
            for key, (first, last) in zip(self._outputs[at : end - 1], spans, strict=True)
        )


def _rows_gone_through(step: Step) -> tuple[int, int]:
    """Return the rows and columns that the program of a step goes through."""
    return step.input_shape if step.kind == MEAN else step.output_shape


def _joined(steps: Sequence[Step], keys: Mapping[Memory, int]) -> Step | None:
    """Return one step for several; None where there is no room, or what lies between is not read in order."""
    read = [keys[memory] for step in steps for memory in _read_by(step)]
    last, shape = steps[-1], _rows_gone_through(steps[0])
    if keys[last.output] in read or last.output_shape != shape:
        return None
    program = _Program(keys, Counter(read), shape[1])
    if not all(program.add(step) for step in steps):
        return None
    joined = _step(last.kernel, last.output, tuple(program.memories), tuple(program.instructions), last.output_shape)
    return joined and replace(joined, operations=tuple(one for step in steps for one in step.operations))


def _read_by(step: Step) -> list[Memory]:
    return [step.source, *([] if step.residual is None else [step.residual])]


def _put_together(product: Instruction, addition: Instruction) -> tuple[Instruction, ...]:
    """Return one instruction for real products to which alone a number is added, else the two."""
    number, walk = addition.constant, addition.walk
    fits = (product.function, addition.function) == (MUL, ADD) and product.target == addition.start
    if not fits or _is_bounded(product) or addition.operand != CONSTANT or number is None or number.dtype.kind != "f":
        return product, addition
    if walk is None or not walk.is_scalar:
        return product, addition
    numbers = {"alpha": float(number.reshape(-1)[0])}
    low, high, target = addition.low, addition.high, addition.target
    return (replace(product, function=MULTIPLY_ADD, numbers=numbers, low=low, high=high, target=target),)


def _is_bounded(instruction: Instruction) -> bool:
    return math.isfinite(instruction.low) or math.isfinite(instruction.high)


def _narrow(instruction: Instruction) -> Instruction:
    """Return an instruction for narrow values: what it reads of them is like them."""
    operand = VALUE if instruction.operand == NARROW else instruction.operand
    return replace(instruction, operand=operand, is_narrow=True)


def _is_narrow_operand(instruction: Instruction) -> bool:
    """Whether an instruction for narrow values reads nothing beside them, or one number."""
    is_number = instruction.walk is not None and instruction.walk.is_scalar
    return instruction.operand in (NOTHING, VALUE) or (instruction.operand == CONSTANT and is_number)


@dataclass
class _Program:
    """Instructions of several steps, as they are put together.

    waiting: how many operands are yet to read a memory; depth: of the rows that it goes through; registers: where what
    was made and is read again lies; narrow: what of this is one number a row.
    """

    keys: Mapping[Memory, int]
    waiting: Counter[int]
    depth: int
    memories: list[Memory] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    registers: dict[int, int] = field(default_factory=dict)
    narrow: set[int] = field(default_factory=set)

    def add(self, step: Step) -> bool:
        """Add a step of one operation, if there is room for it."""
        load, operation = step.program
        own, other = self._read(step.source, load), self._read_second(step, operation)
        if own is None or other is None:
            return False
        if step.output_shape[1] < self.depth:
            self.narrow.add(self.keys[step.output])
            if step.kind == ELEMENTWISE:
                own, other = (_narrow(one) for one in (own, other))
                if own.operand != VALUE or not _is_narrow_operand(other):
                    return False
        if own.operand == VALUE:
            start = own.other
        elif other.operand == VALUE and operation.operand == RESIDUAL:  # the two change places
            start = other.other
            other = replace(
                operation, operand=own.operand, walk=own.walk, other=own.other, reversed=not operation.reversed
            )
        else:
            free = self._free_register()
            if free is None:
                return False
            start = free
            self.instructions.append(replace(own, target=start))
        if operation.operand == VALUE:
            other = replace(operation, other=start)
        self._release(step)
        is_free = start not in self.registers.values()
        target = self._free_register()
        if target is None:
            return False
        self.registers[self.keys[step.output]] = target
        made = replace(other, start=start, target=target)
        last = self.instructions.pop() if self.instructions and is_free else None
        self.instructions += [made] if last is None else _put_together(last, made)
        return len(self.instructions) <= _MOST_INSTRUCTIONS

    def _read_second(self, step: Step, operation: Instruction) -> Instruction | None:
        if operation.operand != RESIDUAL or step.residual is None:
            return operation
        return self._read(step.residual, operation)

    def _read(self, memory: Memory, instruction: Instruction) -> Instruction | None:
        """Return an instruction that reads a memory, or the value that would be in it."""
        key = self.keys[memory]
        if key in self.registers:
            walk, is_narrow = instruction.walk, key in self.narrow
            if walk is None or not (walk.is_number_of_row if is_narrow else walk.is_plain):
                return None
            return replace(instruction, operand=NARROW if is_narrow else VALUE, other=self.registers[key])
        at = next((i for i, one in enumerate(self.memories) if self.keys[one] == key), len(self.memories))
        if at == len(_MEMORIES):
            return None
        self.memories[at:] = self.memories[at:] or [memory]
        return replace(instruction, operand=_MEMORIES[at])

    def _release(self, step: Step) -> None:
        """Forget the values that nothing reads after a step."""
        for memory in _read_by(step):
            key = self.keys[memory]
            self.waiting[key] -= 1
            if not self.waiting[key]:
                self.registers.pop(key, None)

    def _free_register(self) -> int | None:
        return next((at for at in range(_REGISTERS) if at not in self.registers.values()), None)


def _step(
    kernel: Kernel,
    output: Memory,
    memories: tuple[Memory, ...],
    program: tuple[Instruction, ...],
    shape: tuple[int, int],
) -> Step | None:
    """Return a step; None where rows are too short for vectors and cannot be put together, or too long to be shared."""
    rows, depth = shape
    operations = sum(one.function != LOAD for one in program)
    program = _simplified(program, kernel)
    at_once = _at_once(program, depth)
    if depth > _MOST_ELEMENTS_OF_A_ROW or not (at_once or depth >= _LEAST_ROW):
        return None
    source, residual, third = (*memories, None, None)[: len(_MEMORIES)]
    if source is None:
        raise ValueError("a program of constants alone")
    reads, reads_residual, reads_third = (_reading(program, which) for which in _MEMORIES)
    return Step(
        kernel,
        ELEMENTWISE,
        source,
        output,
        residual,
        rows_of(rows, depth),
        (_packed(program, at_once, by_parts=("DOT4", 0) not in kernel.defines),),
        {"instructions": len(program), "at_once": at_once},
        rows * depth * operations,
        sum(memory.size_bytes for memory in (*memories, output)),
        reads=reads,
        reads_residual=reads_residual,
        program=program,
        third=third,
        reads_third=reads_third,
    )


def _reading(program: Sequence[Instruction], which: int) -> Reading | None:
    """Return what all instructions read of an operand."""
    readings = {one.walk.reading for one in program if one.operand == which and one.walk is not None}
    if len(readings) <= 1:
        return next(iter(readings), None)
    one = next(iter(readings))
    return Reading(one.rows, one.depth)


def _simplified(program: tuple[Instruction, ...], kernel: Kernel) -> tuple[Instruction, ...]:
    """Return a table in the place of what makes of a byte another."""
    dtype = {"uchar": np.dtype(np.uint8), "char": np.dtype(np.int8)}.get(str(dict(kernel.defines)["T"]))
    if dtype is None or [one.function for one in program] == [LOAD, TABLE]:
        return program
    table = byte_programs.table_of(program, dtype)
    return program if table is None else (program[0], Instruction(TABLE, constant=table))


def _at_once(program: Sequence[Instruction], depth: int) -> int:
    """Return how many elements of one long row of all rows are computed at once; 0 where rows must be apart."""
    others = [one for one in program if one.walk is not None and not (one.walk.is_plain or one.walk.is_scalar)]
    if has_mean(program):
        return 0
    if not others:
        return _WIDTH
    repeated = all(one.walk is not None and one.walk.is_same_row for one in others) and len(others) <= _COPIES
    return _WIDTH // depth * depth if repeated and 2 * depth <= _WIDTH else 0


def _packed(program: Sequence[Instruction], at_once: int, *, by_parts: bool) -> Array:
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
            "is_bounded": int(_is_bounded(one)),
            "from": one.start,
            "to": one.target,
            "place": one.other,
            "is_narrow": int(one.is_narrow),
            **one.numbers,
        }
        if one.constant is not None:
            values["table" if one.function == PAIRS else "place"] = end // _ALIGNMENT
            constant = parts_of(one.constant) if by_parts and one.function == TABLE else one.constant
            flat = np.ascontiguousarray(constant).reshape(-1).view(np.uint8)
            parts += [flat, np.zeros(-flat.size % _ALIGNMENT, np.uint8)]
            end += -(-flat.size // _ALIGNMENT) * _ALIGNMENT
        if at_once and walk.is_same_row and not (walk.is_plain or walk.is_scalar):
            copies += 1
            values["repeated"] = copies
        for at, name in enumerate(_FIELDS):
            row[at] = word(values.get(name, 0))
    return np.concatenate([table.reshape(-1).view(np.uint8), *parts])


def word(value: float) -> int:
    """Return the bits of a field: of an int itself, of a float as float32."""
    return int(np.float32(value).view(np.int32)) if isinstance(value, float) else int(value)

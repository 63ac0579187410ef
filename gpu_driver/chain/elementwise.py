# SPDX-License-Identifier: Apache-2.0
"""Operations element by element as steps of a chain: programs of instructions, put together where one feeds the next.

An instruction makes of sixteen values, and what it reads beside them, the next sixteen (common/elementwise_step.h). A
step begins with LOAD. Where one step's output is read by the next step alone, the two are one: values stay in registers
and the first cache instead of going through memory.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.step import CONSTANT, ELEMENTWISE, RESIDUAL, SOURCE, VALUE, Instruction, Reading, Step, Walk
from nn_runtime.codes import FuseCode
from nn_runtime.operations.sliding_window import SlidingWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_driver.bound import BoundOperand
    from gpu_driver.chain.step import Memory
    from gpu_driver.launch import Kernel, Launch
    from nn_runtime.operand import Array, Dimensions

ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, LOAD, TABLE, CLAMP = 0, 1, 2, 3, 4, 5, 6, 7, 8
ABS, NEG, EXP, SQRT, RSQRT, LOGISTIC, TANH, HARD_SWISH, ELU = 9, 10, 11, 12, 13, 14, 15, 16, 17
WORDS = 32
"""Of an instruction."""
_FIELDS = (
    *("function", "operand", "place", "reversed", "divide", "modulo", "row_stride", "step"),
    *("low", "high", "alpha", "left_shift"),
    *("zero0", "zero1", "zero_out", "unused", "multiplier0", "exponent0", "multiplier1", "exponent1"),
    *("multiplier_out", "exponent_out", "by_floats", "real0", "real1", "offset"),
    "is_bounded",
)
_ALIGNMENT = 64
_LEAST_ROW = 16
_MOST_ELEMENTS_OF_A_ROW = 16384
_MOST_CONSTANT_BYTES = 1 << 20
_MOST_INSTRUCTIONS = 64


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


def rows_of(rows: int, depth: int) -> SlidingWindow:
    """Return the geometry of a step that makes rows."""
    ends, filters = (rows, depth, 1, rows, depth), (1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    return SlidingWindow(1, 1, *ends, *filters, nchw=False, activation=FuseCode.NONE)


def step_of(
    kernel: Kernel,
    output: BoundOperand,
    operands: Sequence[BoundOperand],
    function: int,
    low: float,
    high: float,
    numbers: Mapping[str, int | float] | None = None,
    table: Array | None = None,
) -> Step | None:
    """Return the step of one operation on one or two operands; None where the kernel does not take it.

    table: of 256 elements, for TABLE. low, high: bounds of the result.
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
        program.append(Instruction(function, constant=table, low=low, high=high, numbers=numbers or {}))
    for at in others:
        other, which = operands[at], RESIDUAL
        if other is operands[first]:
            which = VALUE
        elif other.is_constant:
            which = CONSTANT
        else:
            residual = other
        data = other.constant if which == CONSTANT else None
        if data is not None and data.nbytes > _MOST_CONSTANT_BYTES:
            return None
        program.append(Instruction(function, which, walks[at], data, at < first, low, high, numbers or {}))
    step = _step(kernel, output, (operands[first], residual), tuple(program), math.prod(outer), depth)
    return step if _fits(step) else None


def joinable(launch: Launch, step: Step | None) -> Launch:
    """Return the launch that a step may take the place of; it has memory of its own then, as all in a chain."""
    return launch if step is None else replace(launch, steps=(step,), in_place=False)


def put_together(steps: Sequence[Step], keys: Mapping[Memory, int], inner: frozenset[int]) -> tuple[Step, ...]:
    """Make one step of neighbours of which the second alone reads what the first makes.

    keys, inner: as chain/launches.py has them.
    """
    used = Counter(keys[memory] for step in steps for memory in step.memories)
    result: list[Step] = []
    for step in steps:
        last = result[-1] if result else None
        both = None
        if last is not None and last.kind == step.kind == ELEMENTWISE:
            between = keys[last.output]
            if between in inner and used[between] == 2 and between in (keys[one] for one in _read_by(step)):
                both = _both(last, step, keys)
        if both is None:
            result.append(step)
        else:
            result[-1] = both
    return tuple(result)


def _read_by(step: Step) -> list[Memory]:
    return [step.source, *([] if step.residual is None else [step.residual])]


def _both(first: Step, second: Step, keys: Mapping[Memory, int]) -> Step | None:
    """Return one step for two, None if it would read more than two memories or what lies between not in order."""
    between = keys[first.output]
    load, *rest = second.program
    if first.output_shape != second.output_shape or len(first.program) + len(rest) > _MOST_INSTRUCTIONS:
        return None
    if keys[second.source] == between:
        if any(one.operand == SOURCE for one in rest) or not _is_plain(load):
            return None
        other = second.residual
    else:
        # The value so far is the second operand: the two change places.
        if len(rest) != 1 or second.residual is None or rest[0].operand != RESIDUAL or not _is_plain(rest[0]):
            return None
        rest = [replace(rest[0], walk=load.walk, reversed=not rest[0].reversed)]
        other = second.source
    memories = _read_by(first)
    which = RESIDUAL
    if other is not None:
        at = next((i for i, one in enumerate(memories) if keys[one] == keys[other]), len(memories))
        if at == len(memories):
            memories.append(other)
        if len(memories) > 2:
            return None
        which = (SOURCE, RESIDUAL)[at]
    moved = [replace(one, operand=which) if one.operand == RESIDUAL else one for one in rest]
    rows, depth = second.output_shape
    step = _step(
        second.kernel,
        second.output,
        (memories[0], memories[1] if len(memories) > 1 else None),
        (*first.program, *moved),
        rows,
        depth,
    )
    return replace(step, operations=(*first.operations, *second.operations)) if _fits(step) else None


def _is_plain(instruction: Instruction) -> bool:
    return instruction.walk is not None and instruction.walk.is_plain


def _step(
    kernel: Kernel,
    output: Memory,
    memories: tuple[Memory, Memory | None],
    program: tuple[Instruction, ...],
    rows: int,
    depth: int,
) -> Step:
    source, residual = memories
    walks = [one.walk for one in program if one.walk is not None]
    as_one_row = all(walk.is_plain or walk.is_scalar for walk in walks)
    readings = [_reading(program, which) for which in (SOURCE, RESIDUAL)]
    moved = sum(memory.size_bytes for memory in (source, residual, output) if memory is not None)
    return Step(
        kernel,
        ELEMENTWISE,
        source,
        output,
        residual,
        rows_of(rows, depth),
        (_packed(program),),
        {"instructions": len(program), "as_one_row": int(as_one_row)},
        rows * depth * (len(program) - 1),
        moved,
        reads=readings[0],
        reads_residual=readings[1],
        program=program,
    )


def _fits(step: Step) -> bool:
    """Whether rows are long enough for vectors, or are put together, and short enough to be shared among cores."""
    depth = step.geometry.output_depth
    return (step.values["as_one_row"] == 1 or depth >= _LEAST_ROW) and depth <= _MOST_ELEMENTS_OF_A_ROW


def _reading(program: Sequence[Instruction], which: int) -> Reading | None:
    """Return what all instructions read of an operand."""
    readings = {one.walk.reading for one in program if one.operand == which and one.walk is not None}
    if len(readings) <= 1:
        return next(iter(readings), None)
    one = next(iter(readings))
    return Reading(one.rows, one.depth)


def _packed(program: Sequence[Instruction]) -> Array:
    """Return the bytes of a program and of what its instructions read, each part 64-byte aligned."""
    parts: list[Array] = []
    table = np.zeros((len(program), WORDS), np.int32)
    end = table.nbytes
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
            "is_bounded": int(math.isfinite(one.low) or math.isfinite(one.high)),
            **one.numbers,
        }
        if one.constant is not None:
            values["place"] = end // _ALIGNMENT
            flat = np.ascontiguousarray(one.constant).reshape(-1).view(np.uint8)
            parts += [flat, np.zeros(-flat.size % _ALIGNMENT, np.uint8)]
            end += -(-flat.size // _ALIGNMENT) * _ALIGNMENT
        for at, name in enumerate(_FIELDS):
            row[at] = word(values.get(name, 0))
    return np.concatenate([table.reshape(-1).view(np.uint8), *parts])


def word(value: float) -> int:
    """Return the bits of a field: of an int itself, of a float as float32."""
    return int(np.float32(value).view(np.int32)) if isinstance(value, float) else int(value)

# SPDX-License-Identifier: Apache-2.0
"""Element-wise steps put together where one feeds the next: one program for neighbours.

Nobody else reads anything of them but the last one's result. Values stay in registers and the first cache instead of
going through memory. The mean of a row, and what is made of it, are narrow values, a vector for each row, so that a
normalisation is one step.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.chain.elementwise import MEMORIES, REGISTERS, in_shape, program_step
from gpu_driver.chain.kinds import From, Function, Kind
from gpu_driver.chain.step import Instruction
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpu_driver.chain.memory import Memories
    from gpu_driver.chain.step import Memory, Step

_MOST_INSTRUCTIONS = 64
_REGISTERED = (From.VALUE, From.NARROW)


def fused(steps: Sequence[Step], memories: Memories) -> tuple[Step, ...]:
    """Make one step of neighbours of which nobody else reads anything but what the last one makes."""
    steps = _in_shape_of_makers(steps, memories)
    users = _Users(steps, memories)
    result: list[Step] = []
    at = 0
    while at < len(steps):
        end = users.end_of_row(at)
        joined = None
        while end > at + 1:
            joined = _joined(steps[at:end], memories) if users.are_alone(at, end) else None
            if joined is not None:
                break
            end -= 1
        result.append(joined or steps[at])
        at = max(end, at + 1)
    return tuple(result)


def _in_shape_of_makers(steps: Sequence[Step], memories: Memories) -> list[Step]:
    """Let steps that only know elements go through the rows in which the elements were made, behind reshapes too."""
    shapes: dict[int, tuple[int, int]] = {}
    result = []
    for step in steps:
        shape = shapes.get(memories.key(step.source), step.output_shape)
        result.append(step if shape == step.output_shape else in_shape(step, shape) or step)
        shapes[memories.key(step.output)] = result[-1].output_shape
    return result


class _Users:
    """Who uses the memories of a chain's steps."""

    def __init__(self, steps: Sequence[Step], memories: Memories) -> None:
        self._steps = steps
        self._outputs = [memories.key(step.output) for step in steps]
        self._inner = memories.inner
        self._last = {memories.key(memory): at for at, step in enumerate(steps) for memory in step.memories}

    def end_of_row(self, at: int) -> int:
        """Return the end of neighbours from `at` on that go through equal rows, or through what they made of a row."""
        shape, end, means = _rows_gone_through(self._steps[at]), at, False
        while end < min(len(self._steps), at + _MOST_INSTRUCTIONS):
            step = self._steps[end]
            is_narrow = means and step.output_shape == (shape[0], 1)
            if not step.program or not (is_narrow or _rows_gone_through(step) == shape):
                break
            means |= step.kind == Kind.REDUCE
            end += 1
        return end

    def are_alone(self, at: int, end: int) -> bool:
        """Whether nobody but steps at .. end - 1 uses what those before the last make."""
        return all(key in self._inner and self._last[key] < end for key in self._outputs[at : end - 1])


def _rows_gone_through(step: Step) -> tuple[int, int]:
    """Return the rows and columns that the program of a step goes through."""
    return step.input_shape if step.kind == Kind.REDUCE else step.output_shape


def _joined(steps: Sequence[Step], memories: Memories) -> Step | None:
    """Return one step for several; None where there is no room, or what lies between is not read in order."""
    read = [memories.key(memory) for step in steps for memory in _read_by(step)]
    last, shape = steps[-1], _rows_gone_through(steps[0])
    if last.output_shape != shape:
        return None
    program = _Program(memories, _Registers(Counter(read)), shape[1])
    if not all(program.add(step) for step in steps):
        return None
    joined = program_step(last.kernel, last.output, tuple(program.operands), tuple(program.instructions), shape)
    return joined and replace(joined, operations=tuple(one for step in steps for one in step.operations))


def _is_choice(step: Step) -> bool:
    return bool(step.program) and step.program[-1].function == Function.SELECT


def _read_by(step: Step) -> list[Memory]:
    return [one for one in (step.source, step.residual, step.third) if one is not None]


class _Registers:
    """What lies in which register while instructions of several steps are put together, by the keys of memories.

    Of what the steps made, it is the only copy, of what was loaded not: that gives way where a register is needed.
    """

    def __init__(self, readers: Counter[int]) -> None:
        """`readers`: how many are yet to read each memory."""
        self._readers = readers
        self._made: dict[int, int] = {}
        self._loaded: dict[int, int] = {}
        self._narrow: set[int] = set()

    def of_made(self, key: int) -> int | None:
        """Return where that lies which a step made."""
        return self._made.get(key)

    def of_loaded(self, key: int) -> int | None:
        """Return where the elements of a memory lie."""
        return self._loaded.get(key)

    def holds_made(self, register: int) -> bool:
        """Whether something that a step made, and that is yet to be read, lies there."""
        return register in self._made.values()

    def is_narrow(self, key: int) -> bool:
        """Whether what was made is one number a row."""
        return key in self._narrow

    def free(self, besides: Collection[int] = ()) -> int | None:
        """Return a register in which nothing lies, else one of what was loaded; None where there is neither."""
        free = [at for at in range(REGISTERS) if at not in self._made.values() and at not in besides]
        found = next((at for at in free if at not in self._loaded.values()), free[0] if free else None)
        self._loaded = {key: at for key, at in self._loaded.items() if at != found}
        return found

    def unused(self, besides: int) -> int | None:
        """Return a register in which nothing lies at all."""
        taken = {besides, *self._made.values(), *self._loaded.values()}
        return next((at for at in range(REGISTERS) if at not in taken), None)

    def put_loaded(self, key: int, register: int) -> None:
        """Note that the elements of a memory lie there, too."""
        self._loaded[key] = register

    def put_made(self, key: int, register: int, is_narrow: bool) -> None:
        """Note that what a step made lies there."""
        self._made[key] = register
        if is_narrow:
            self._narrow.add(key)

    def is_read_besides(self, reads: Sequence[int], key: int) -> bool:
        """Whether more are yet to read a memory than those reads."""
        return self._readers[key] > reads.count(key)

    def release(self, reads: Sequence[int]) -> None:
        """Count reads as done; what nobody is yet to read is forgotten."""
        for key in reads:
            self._readers[key] -= 1
            if not self._readers[key]:
                self._made.pop(key, None)
                self._loaded.pop(key, None)


@dataclass
class _Program:
    """Instructions of several steps, as they are put together.

    operands: the memories that it reads; depth: of the rows that it goes through.
    """

    memories: Memories
    registers: _Registers
    depth: int
    operands: list[Memory] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)

    def add(self, step: Step) -> bool:
        """Add a step of one operation, if there is room for it."""
        reads = [self.memories.key(memory) for memory in _read_by(step)]
        operation = self._choice(step) if _is_choice(step) else self._operation(step, reads)
        if operation is None:
            return False
        self.registers.release(reads)
        target = self.registers.free()
        if target is None:
            return False
        self._append(replace(operation, target=target))
        self.registers.put_made(self.memories.key(step.output), target, self._makes_narrow(step))
        return len(self.instructions) <= _MOST_INSTRUCTIONS

    def _operation(self, step: Step, reads: Sequence[int]) -> Instruction | None:
        """Return the operation of a step, on what lies in registers or is loaded; None where there is no room."""
        operands = self._operands(step, reads)
        if operands is None:
            return None
        own, other, beside = operands
        start = self._register(step.source, own, {other.other} if other.operand in _REGISTERED else set())
        if start is None:
            return None
        if step.program[1].operand == From.VALUE:
            other = replace(other, other=start)
        elif beside is not None and self.registers.is_read_besides(reads, self.memories.key(beside)):
            other = self._kept(beside, other, start)
        return replace(other, start=start)

    def _choice(self, step: Step) -> Instruction | None:
        """Return SELECT as `_operation` does; it begins with two values."""
        memories = dict(zip(MEMORIES, (step.source, step.residual, step.third), strict=True))
        found: list[tuple[Memory | None, Instruction]] = []
        for one in step.program:
            memory = memories.get(From(one.operand))
            read = one if memory is None else self._read(memory, one)
            if read is None:
                return None
            found.append((memory, read))
        *loads, (_, operation) = found
        taken = {one.other for _, one in found if one.operand in _REGISTERED}
        registers = []
        for memory, load in loads:
            register = self._register(memory, load, taken)
            if register is None:
                return None
            registers.append(register)
            taken.add(register)
        start, alternative = registers
        return None if self._makes_narrow(step) else replace(operation, start=start, alternative=alternative)

    def _makes_narrow(self, step: Step) -> bool:
        return step.output_shape[1] < self.depth

    def _operands(self, step: Step, reads: Sequence[int]) -> tuple[Instruction, Instruction, Memory | None] | None:
        """Return what loads that with which an operation begins, the operation, and the memory that this reads."""
        load, operation = step.program
        own = self._read(step.source, load)
        other = operation
        if operation.operand == From.RESIDUAL and step.residual is not None:
            found = self._read(step.residual, operation)
            if found is None:
                return None
            other = found
        if own is None:
            return None
        if self._makes_narrow(step) and step.kind == Kind.ELEMENTWISE:
            own, other = _narrow(own), _narrow(other)
            return (own, other, None) if own.operand == From.VALUE and _is_narrow_operand(other) else None
        is_second_made = other.operand == From.VALUE != own.operand and operation.operand == From.RESIDUAL
        if is_second_made and not self.registers.is_read_besides(reads, self.memories.key(step.source)):
            turned = replace(operation, operand=own.operand, walk=own.walk, other=own.other)
            return other, replace(turned, reversed=not operation.reversed), step.source  # the two change places
        return own, other, step.residual

    def _read(self, memory: Memory, instruction: Instruction) -> Instruction | None:
        """Return an instruction that reads a memory, or the value that would be in it."""
        key, walk = self.memories.key(memory), instruction.walk
        made, loaded = self.registers.of_made(key), self.registers.of_loaded(key)
        if made is not None:
            is_narrow = self.registers.is_narrow(key)
            if walk is None or not (walk.is_number_of_row if is_narrow else walk.is_plain):
                return None
            return replace(instruction, operand=From.NARROW if is_narrow else From.VALUE, other=made)
        if loaded is not None and walk is not None and walk.is_plain:
            return replace(instruction, operand=From.VALUE, other=loaded)
        at = next((i for i, one in enumerate(self.operands) if self.memories.key(one) == key), len(self.operands))
        if at == len(MEMORIES):
            return None
        self.operands[at:] = self.operands[at:] or [memory]
        return replace(instruction, operand=MEMORIES[at])

    def _register(self, memory: Memory | None, load: Instruction, besides: Collection[int]) -> int | None:
        """Return where that lies with which an operation begins; it is loaded, beside other registers, if need be."""
        if load.operand == From.VALUE:
            return load.other
        register = self.registers.free(besides)
        if register is not None:
            self.instructions.append(replace(load, target=register))
            if memory is not None and _is_plain(load):
                self.registers.put_loaded(self.memories.key(memory), register)
        return register

    def _kept(self, memory: Memory, other: Instruction, start: int) -> Instruction:
        """Load an operand that is read again into a register, if one is free; return the instruction that reads it."""
        register = self.registers.unused(start) if _is_plain(other) else None
        if register is None:
            return other
        self.instructions.append(Instruction(Function.LOAD, other.operand, other.walk, target=register))
        self.registers.put_loaded(self.memories.key(memory), register)
        return replace(other, operand=From.VALUE, other=register)

    def _append(self, instruction: Instruction) -> None:
        """Append an instruction, as one with those before it that make what nothing else reads."""
        while self.instructions and not self.registers.holds_made(self.instructions[-1].target):
            one = _as_one(self.instructions[-1], instruction)
            if one is None:
                break
            self.instructions.pop()
            instruction = one
        self.instructions.append(instruction)


def _as_one(first: Instruction, second: Instruction) -> Instruction | None:
    """Return the instruction that does what two do, of which the second reads what the first makes, if there is one."""
    if first.is_bounded or first.is_narrow != second.is_narrow:
        return None
    functions = first.function, second.function
    made = replace(first, target=second.target, low=second.low, high=second.high)
    number = _real_number(second)
    if functions == (Function.MUL, Function.ADD) and number is not None:
        return replace(made, function=Function.MULTIPLY_ADD, numbers={"alpha": number})
    if second.function == Function.MULTIPLY_ADD:
        return _longer_polynomial(first, second)
    if functions == (Function.LOGISTIC, Function.MUL) and second.operand == From.VALUE:
        others = {second.start, second.other} - {first.target}
        if len(others) == 1:  # not where it is multiplied by itself
            return replace(made, function=Function.GATE, operand=From.VALUE, walk=second.walk, other=others.pop())
    return None


def _longer_polynomial(first: Instruction, second: Instruction) -> Instruction | None:
    """Return Horner's scheme with one step more: what was made times the value it was made of, plus a number."""
    before = _coefficients(first)
    factors = {second.start, second.other} if second.operand == From.VALUE else set()
    if before is None or first.start == first.target or factors != {first.start, first.target}:
        return None
    coefficients = np.array([*before, second.numbers["alpha"]], np.float32)
    return replace(second, function=Function.POLYNOMIAL, operand=From.NOTHING, walk=None, numbers={},
                   constant=coefficients, reversed=False, start=first.start, other=0)  # fmt: skip


def _coefficients(instruction: Instruction) -> Sequence[float] | None:
    """Return those of the polynomial of its value that an instruction computes, if it does, the highest first."""
    if instruction.function == Function.POLYNOMIAL and instruction.constant is not None:
        return [float(one) for one in instruction.constant]
    number = _real_number(instruction) if instruction.function == Function.MULTIPLY_ADD else None
    return None if number is None else (number, float(instruction.numbers["alpha"]))


def _real_number(instruction: Instruction) -> float | None:
    """Return the constant that an instruction reads, if that is one real number."""
    number, walk = instruction.constant, instruction.walk
    if instruction.operand != From.CONSTANT or number is None or walk is None or not walk.is_scalar:
        return None
    return float(number.reshape(-1)[0]) if number.dtype.kind == "f" else None


def _is_plain(instruction: Instruction) -> bool:
    """Whether an instruction reads a memory element by element."""
    return instruction.operand in MEMORIES and instruction.walk is not None and instruction.walk.is_plain


def _narrow(instruction: Instruction) -> Instruction:
    """Return an instruction for narrow values: what it reads of them is like them."""
    operand = From.VALUE if instruction.operand == From.NARROW else instruction.operand
    return replace(instruction, operand=operand, is_narrow=True)


def _is_narrow_operand(instruction: Instruction) -> bool:
    """Whether an instruction for narrow values reads nothing beside them, or one number."""
    is_number = instruction.walk is not None and instruction.walk.is_scalar
    return instruction.operand in (From.NOTHING, From.VALUE) or (instruction.operand == From.CONSTANT and is_number)

# SPDX-License-Identifier: Apache-2.0
"""From a segment to enqueued commands: programs and constants once, kernel objects and memory per execution context."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyopencl as cl

from gpu_driver.bound import BoundOperand
from gpu_driver.buffers import Lifetime, plan_arena
from gpu_driver.context import hal_error
from gpu_driver.launch import Launch, Packed, Scratch
from gpu_driver.programs import ProgramBuildError
from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_driver.buffers import ArenaPlan
    from gpu_driver.context import DeviceConstant, DeviceContext
    from gpu_driver.launch import Argument, Command
    from gpu_driver.lowering import Segment
    from gpu_driver.programs import Program
    from nn_runtime.operand import Array

Memory: TypeAlias = "int | Scratch"
"""A piece of device memory that commands name: an operand's storage, or a scratch object."""


@dataclass(frozen=True)
class Transfer:
    """What a host transfer was, for a profile."""

    name: str
    size_bytes: int


Recorded: TypeAlias = "tuple[Command | Transfer, cl.Event]"


class CompiledSegment:
    """A segment with its programs built, its constants uploaded and its arena planned; shared by all contexts."""

    def __init__(self, device: DeviceContext, segment: Segment) -> None:
        """Build and upload; raises HalError naming the operation that does not build."""
        self.device = device
        self.segment = segment
        self.programs = self._build_programs()
        self._uploaded: dict[int, DeviceConstant] = {}
        self.memory_arguments = [self._memory_arguments(command) for command in segment.commands]
        self.temporaries, self.arena = self._plan_arena()

    def storage_size(self, memory: Memory) -> int:
        """Return the size in bytes of an operand's storage or a scratch."""
        return memory.size_bytes if isinstance(memory, Scratch) else self.segment.operands[memory].size_bytes

    def constant_of(self, argument: Argument) -> cl.Buffer | None:
        """Return the uploaded buffer of a constant argument, or None for other arguments."""
        found = self._uploaded.get(id(argument))
        return None if found is None else found.buffer

    def fresh_programs(self) -> list[Program]:
        """Return the programs that were built in this process and never warmed."""
        return list({id(p): p for p in self.programs if p is not None and self.device.programs.is_new(p)}.values())

    def _build_programs(self) -> list[Program | None]:
        launched: dict[tuple[str, tuple[tuple[str, str | int], ...]], set[tuple[str, tuple[int, ...] | None]]] = {}
        for command in self.segment.commands:
            if isinstance(command, Launch):
                kernel = command.kernel
                launched.setdefault((kernel.source, kernel.defines), set()).add((kernel.name, command.local_size))
        programs: list[Program | None] = []
        for command in self.segment.commands:
            if isinstance(command, Launch):
                kernel = command.kernel
                announced = launched[kernel.source, kernel.defines]
                try:
                    programs.append(self.device.programs.get(kernel.source, dict(kernel.defines), (), announced))
                except ProgramBuildError as error:
                    where = ", ".join(str(at) for at in command.operations)
                    raise HalError(ErrorStatus.GENERAL_FAILURE, f"operation {where}: {error.summary}") from error
            else:
                programs.append(None)
        return programs

    def _memory_arguments(self, command: Command) -> list[tuple[int, Memory]]:
        """Return (argument index, memory) of a command's memory arguments, uploading its constants."""
        arguments: tuple[Argument, ...]
        arguments = command.arguments if isinstance(command, Launch) else (command.source, command.destination)
        found: list[tuple[int, Memory]] = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, Packed):
                self._uploaded[id(argument)] = self.device.constant(argument.data)
            elif isinstance(argument, BoundOperand) and argument.constant is not None:
                self._uploaded[id(argument)] = self.device.constant(argument.constant)
            elif isinstance(argument, BoundOperand):
                found.append((i, self.segment.storage.get(argument.index, argument.index)))
            elif isinstance(argument, Scratch):
                found.append((i, argument))
        return found

    def _plan_arena(self) -> tuple[list[Memory], ArenaPlan]:
        boundary = self.segment.reads | self.segment.writes
        first: dict[Memory, int] = {}
        last: dict[Memory, int] = {}
        for at, pairs in enumerate(self.memory_arguments):
            for _, memory in pairs:
                if isinstance(memory, Scratch) or memory not in boundary:
                    first.setdefault(memory, at)
                    last[memory] = at
        temporaries = list(first)
        lifetimes = [Lifetime(max(1, self.storage_size(m)), first[m], last[m]) for m in temporaries]
        return temporaries, plan_arena(lifetimes, max(64, self.device.profile.mem_base_addr_align_bytes))


class SegmentContext:
    """One execution context's kernel objects and arena for a segment. Not for two threads at once."""

    def __init__(self, compiled: CompiledSegment) -> None:
        """Make one kernel object per launch, with its constant and scalar arguments set."""
        self._compiled = compiled
        self._commands = compiled.segment.commands
        self._kernels = [
            None if program is None or not isinstance(command, Launch) else self._make_kernel(command, program)
            for command, program in zip(self._commands, compiled.programs, strict=True)
        ]
        self._uses: dict[Memory, list[tuple[int, int]]] = {}
        for at, pairs in enumerate(compiled.memory_arguments):
            for i, memory in pairs:
                self._uses.setdefault(memory, []).append((at, i))
        self._bound: dict[Memory, cl.Buffer] = {}
        self._arena: cl.Buffer | None = None

    def bind(self, operand: int, buffer: cl.Buffer) -> None:
        """Let the commands use `buffer` as a boundary operand's memory; arguments are set only if it changed."""
        if self._bound.get(operand) is not buffer:
            self._set(operand, buffer)

    def take_arena(self) -> None:
        """Allocate the memory of temporaries, if it is not there, and set it as arguments."""
        plan = self._compiled.arena
        if self._arena is not None or not plan.offsets:
            return
        self._arena = self._compiled.device.allocate(plan.size_bytes)
        flags = cl.mem_flags.READ_WRITE
        for memory, offset in zip(self._compiled.temporaries, plan.offsets, strict=True):
            size = max(1, self._compiled.storage_size(memory))
            self._set(memory, self._arena.get_sub_region(offset, size, flags))

    def drop_memory(self) -> None:
        """Give the arena back and forget every bound buffer."""
        self._bound.clear()
        self._arena = None

    def enqueue(self, queue: cl.CommandQueue, events: list[Recorded] | None) -> None:
        """Enqueue every command in order; keep the events where a list is given."""
        for at, command in enumerate(self._commands):
            self.enqueue_one(at, command, queue, events)

    def enqueue_one(self, at: int, command: Command, queue: cl.CommandQueue, events: list[Recorded] | None) -> None:
        """Enqueue one command; raises HalError naming operation, kernel and sizes."""
        kernel = self._kernels[at]
        try:
            if kernel is not None and isinstance(command, Launch):
                event = cl.enqueue_nd_range_kernel(queue, kernel, command.global_size, command.local_size)
            else:
                event = self._enqueue_copy(at, queue)
        except cl.Error as error:
            raise hal_error(error, describe(command, self._compiled.segment)) from error
        if events is not None:
            events.append((command, event))

    def _enqueue_copy(self, at: int, queue: cl.CommandQueue) -> cl.Event:
        command = self._commands[at]
        if isinstance(command, Launch):
            raise TypeError("a launch is not a copy")
        source = self._compiled.constant_of(command.source) or self._bound[self._storage(command.source)]
        destination = self._bound[self._storage(command.destination)]
        return cl.enqueue_copy(queue, destination, source, byte_count=command.destination.size_bytes)

    def _storage(self, operand: BoundOperand) -> int:
        return self._compiled.segment.storage.get(operand.index, operand.index)

    def _make_kernel(self, command: Launch, program: Program) -> cl.Kernel:
        kernel = program.kernel(command.kernel.name)
        for i, argument in enumerate(command.arguments):
            if isinstance(argument, BoundOperand | Packed):
                constant = self._compiled.constant_of(argument)
                if constant is not None:
                    kernel.set_arg(i, constant)
            elif not isinstance(argument, Scratch):
                kernel.set_arg(i, argument)
        return kernel

    def _set(self, memory: Memory, buffer: cl.Buffer) -> None:
        self._bound[memory] = buffer
        for at, i in self._uses.get(memory, ()):
            kernel = self._kernels[at]
            if kernel is not None:
                kernel.set_arg(i, buffer)


class ExecutionContext:
    """All that one execution at a time needs: memory of boundary operands, a SegmentContext per segment."""

    def __init__(self, device: DeviceContext) -> None:
        """Hold nothing yet."""
        self._device = device
        self._boundary: dict[int, tuple[int, cl.Buffer]] = {}
        self._segments: dict[int, tuple[CompiledSegment, SegmentContext]] = {}
        self.last_used = time.monotonic()

    def segment(self, compiled: CompiledSegment) -> SegmentContext:
        """Return this context's kernel objects for a segment, with the arena taken."""
        found = self._segments.get(id(compiled))
        if found is None:
            found = self._segments[id(compiled)] = (compiled, SegmentContext(compiled))
        found[1].take_arena()
        return found[1]

    def boundary(self, operand: int, size_bytes: int) -> cl.Buffer:
        """Return this context's own buffer for a boundary operand."""
        size, buffer = self._boundary.get(operand, (-1, None))
        if buffer is None or size != size_bytes:
            buffer = self._device.allocate(size_bytes)
            self._boundary[operand] = (size_bytes, buffer)
        return buffer

    def forget_segment(self, compiled: CompiledSegment) -> None:
        """Drop what is kept for a segment that left the cache."""
        self._segments.pop(id(compiled), None)

    def drop_memory(self) -> None:
        """Give every temporary and boundary buffer back."""
        self._boundary.clear()
        for _, context in self._segments.values():
            context.drop_memory()


def write(queue: cl.CommandQueue, buffer: cl.Buffer, data: Array, events: list[Recorded] | None) -> None:
    """Enqueue a host-to-device copy without waiting; `data` must live until the queue is finished."""
    event = cl.enqueue_copy(queue, buffer, np.ascontiguousarray(data), is_blocking=False)
    if events is not None:
        events.append((Transfer("write", data.nbytes), event))


def read(queue: cl.CommandQueue, buffer: cl.Buffer, data: Array, events: list[Recorded] | None) -> None:
    """Enqueue a device-to-host copy without waiting; `data` is contiguous and must live until the queue is finished."""
    event = cl.enqueue_copy(queue, data, buffer, is_blocking=False)
    if events is not None:
        events.append((Transfer("read", data.nbytes), event))


def describe(command: Command, segment: Segment) -> str:
    """Return `operation 7 SOFTMAX: softmax.cl:softmax, global (64, 2), local (64, 1)` for error messages."""
    operations = ", ".join(str(at) for at in command.operations)
    if not isinstance(command, Launch):
        return f"operation {operations}: copy of {command.destination.size_bytes} bytes"
    kernel = command.kernel
    return (
        f"operation {operations}: {kernel.source}:{kernel.name} {dict(kernel.defines)}, "
        f"global {command.global_size}, local {command.local_size}"
    )


def warm_up(context: ExecutionContext, compiled: CompiledSegment, queue: cl.CommandQueue) -> None:
    """Enqueue each (kernel, local size) of freshly built programs once, on its smallest launch, then store them.

    PoCL compiles a kernel at its first enqueue, and its binaries hold what was compiled before they were read.
    """
    fresh = compiled.fresh_programs()
    if not fresh:
        return
    segment = compiled.segment
    bound = context.segment(compiled)
    for operand in segment.reads | segment.writes:
        bound.bind(operand, context.boundary(operand, segment.operands[operand].size_bytes))
    smallest: dict[tuple[int, str, tuple[int, ...]], int] = {}
    for at, (command, program) in enumerate(zip(segment.commands, compiled.programs, strict=True)):
        if program in fresh and isinstance(command, Launch):
            key = (id(program), command.kernel.name, command.local_size)
            other = smallest.get(key)
            if other is None or _items(command) < _items(segment.commands[other]):
                smallest[key] = at
    for at in smallest.values():
        bound.enqueue_one(at, segment.commands[at], queue, None)
    queue.finish()
    for program in fresh:
        compiled.device.programs.store(program)


def _items(command: Command) -> int:
    return int(np.prod(command.global_size)) if isinstance(command, Launch) else 0


def boundary_sizes(segment: Segment) -> Mapping[int, int]:
    """Return the size in bytes of every boundary operand a segment reads or writes."""
    return {i: segment.operands[i].size_bytes for i in segment.reads | segment.writes}

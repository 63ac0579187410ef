# SPDX-License-Identifier: Apache-2.0
"""From a segment to enqueued commands: programs and constants once, kernel objects and memory per execution context."""

from __future__ import annotations

import itertools
import math
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyopencl as cl

from gpu_driver.bound import BoundOperand
from gpu_driver.buffers import Lifetime, plan_arenas
from gpu_driver.context import hal_error
from gpu_driver.launch import CopyBuffer, Fault, Images, Launch, Packed, RandomSeed, Scratch, Zeroed, int32
from gpu_driver.programs import ProgramBuildError
from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpu_driver.buffers import ArenaPlan
    from gpu_driver.context import DeviceContext
    from gpu_driver.device_memory import DeviceBuffer
    from gpu_driver.launch import Argument, Command, WorkSize
    from gpu_driver.lowering import Segment
    from gpu_driver.programs import Program
    from nn_runtime.operand import Array

_SEED_BYTES = 16
_INT_BYTES = 4

Memory: TypeAlias = "int | Scratch"
"""A piece of device memory that commands name: an operand's storage, or a scratch object."""


@dataclass(frozen=True)
class Transfer:
    """What a host transfer was, for a profile."""

    name: str
    size_bytes: int


@dataclass(frozen=True, eq=False)
class Clocked:
    """A launch that told the times of its tasks; `data`: its progress memory, there once the next command is done.

    Where the host sees that memory it is `source`, to be copied to `data` once the launch is done, before another.
    """

    launch: Launch
    data: Array
    source: Array | None = None

    def take(self) -> None:
        """Copy what the host sees."""
        if self.source is not None:
            self.data[:] = self.source


Recorded: TypeAlias = "tuple[Command | Transfer | Clocked, cl.Event]"


class CompiledSegment:
    """A segment with its programs built, its constants uploaded and its arena planned; shared by all contexts.

    `boundary`: size in bytes of each boundary operand that it reads or writes. `problems`: what its launches may
    complain of, by number of the fault.
    """

    def __init__(self, device: DeviceContext, segment: Segment) -> None:
        """Build and upload; raises HalError naming the operation that does not build, or what does not fit."""
        self.device = device
        self.segment = segment
        self.boundary = {i: segment.operands[i].size_bytes for i in segment.reads | segment.writes}
        self.problems = {
            argument.number: argument.problem
            for command in segment.commands
            if isinstance(command, Launch)
            for argument in command.arguments
            if isinstance(argument, Fault)
        }
        self._uploaded: dict[int, DeviceBuffer] = {}
        constants, self.memory_arguments = self._sort_arguments()
        self.temporaries, self.arenas = self._plan_arenas()
        needed = (
            sum(self.boundary.values()) + sum(self.arenas.sizes_bytes) + sum(data.nbytes for data in constants.values())
        )
        device.check_room(needed, "the model")
        self.programs = self._build_programs()
        for identity, data in constants.items():
            self._uploaded[identity] = device.constant(data)

    def storage_size(self, memory: Memory) -> int:
        """Return the size in bytes of an operand's storage or a scratch, at least 1."""
        size = memory.size_bytes if isinstance(memory, Scratch) else self.segment.operands[memory].size_bytes
        return max(1, size)

    def storage_of(self, operand: BoundOperand) -> int:
        """Return the operand whose memory an operand uses."""
        return self.segment.storage.get(operand.index, operand.index)

    def constant_of(self, argument: Argument) -> cl.Buffer | None:
        """Return the uploaded buffer of a constant argument, or None for other arguments."""
        found = self._uploaded.get(id(argument))
        return None if found is None else found.handle

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

    def _sort_arguments(self) -> tuple[dict[int, Array], list[list[tuple[int, Memory]]]]:
        """Return constant data by identity of its argument, and (argument index, memory) for every command."""
        constants: dict[int, Array] = {}
        memory: list[list[tuple[int, Memory]]] = []
        for command in self.segment.commands:
            arguments: tuple[Argument, ...]
            arguments = command.arguments if isinstance(command, Launch) else (command.source, command.destination)
            memory.append([])
            for i, argument in enumerate(arguments):
                if isinstance(argument, Packed):
                    constants[id(argument)] = argument.data
                elif isinstance(argument, BoundOperand) and argument.constant is not None:
                    constants[id(argument)] = argument.constant
                elif isinstance(argument, BoundOperand):
                    memory[-1].append((i, self.storage_of(argument)))
                elif isinstance(argument, Scratch):
                    memory[-1].append((i, argument))
                elif isinstance(argument, Images):
                    whole = argument.whole
                    memory[-1].append((i, whole if isinstance(whole, Scratch) else self.storage_of(whole)))
        return constants, memory

    def _plan_arenas(self) -> tuple[list[Memory], ArenaPlan]:
        first: dict[Memory, int] = {}
        last: dict[Memory, int] = {}
        for at, pairs in enumerate(self.memory_arguments):
            for _, memory in pairs:
                if isinstance(memory, Scratch) or memory not in self.boundary:
                    first.setdefault(memory, at)
                    last[memory] = at
        temporaries = list(first)
        lifetimes = [Lifetime(self.storage_size(m), first[m], last[m]) for m in temporaries]
        profile = self.device.profile
        plan = plan_arenas(lifetimes, max(64, profile.mem_base_addr_align_bytes), profile.max_alloc_bytes)
        return temporaries, plan


class SegmentContext:
    """One execution context's kernel objects for a segment. Not for two threads at once.

    It holds no memory but the part of the arena that its kernels were last given: boundary memory belongs to the run.
    """

    def __init__(self, compiled: CompiledSegment) -> None:
        """Make one kernel object per launch, with its constant and scalar arguments set."""
        self._compiled = compiled
        self._commands = compiled.segment.commands
        self._zeroed: dict[int, tuple[DeviceBuffer, Array | None]] = {}
        """By identity of the launch, with the same memory as the host sees it."""
        self.fault = compiled.device.zeros(_INT_BYTES)[0] if compiled.problems else None
        """The number of the fault that the first launch to complain left, else 0."""
        self._kernels = [
            None if program is None or not isinstance(command, Launch) else self._make_kernel(command, program)
            for command, program in zip(self._commands, compiled.programs, strict=True)
        ]
        self._seeds = [
            (kernel, i)
            for command, kernel in zip(self._commands, self._kernels, strict=True)
            if isinstance(command, Launch) and kernel is not None
            for i, argument in enumerate(command.arguments)
            if isinstance(argument, RandomSeed)
        ]
        self._uses: dict[Memory, list[tuple[cl.Kernel, int]]] = {}
        self._image_uses: dict[Memory, list[tuple[Launch, int]]] = {}
        """Arguments that are one image after the other: launch and argument index."""
        self._images: dict[tuple[int, int], list[cl.Buffer]] = {}
        """Their parts, by identity of the launch and argument index."""
        self._cut: dict[tuple[int, int], cl.Buffer] = {}
        """What the parts are of."""
        for command, kernel, pairs in zip(self._commands, self._kernels, compiled.memory_arguments, strict=True):
            for i, memory in pairs:
                if isinstance(command, Launch) and isinstance(command.arguments[i], Images):
                    self._image_uses.setdefault(memory, []).append((command, i))
                elif kernel is not None:
                    self._uses.setdefault(memory, []).append((kernel, i))
        self._image_arguments: dict[int, list[int]] = {}
        """By identity of the launch."""
        for launch, i in itertools.chain(*self._image_uses.values()):
            self._image_arguments.setdefault(id(launch), []).append(i)
        self._arenas: tuple[DeviceBuffer, ...] = ()
        self._temporaries: dict[Memory, cl.Buffer] = {}
        self._bound: dict[int, int] = {}
        """The number of the buffer that the arguments of each boundary operand are set to."""
        self._plain = self._plain_launches()

    def use_arenas(self, arenas: tuple[DeviceBuffer, ...]) -> None:
        """Let the temporaries lie in these buffers; arguments are set only where the buffers changed."""
        if self._arenas is arenas:
            return
        flags = cl.mem_flags.READ_WRITE
        for memory, place in zip(self._compiled.temporaries, self._compiled.arenas.places, strict=True):
            size_bytes = self._compiled.storage_size(memory)
            part = arenas[place.arena].handle.get_sub_region(place.offset, size_bytes, flags)
            self._temporaries[memory] = part
            self._set(memory, part, arenas[place.arena].handle, place.offset)
        self._arenas = arenas

    def read_scratch(self, queue: cl.CommandQueue, scratch: Scratch, data: Array) -> cl.Event:
        """Enqueue a copy of a scratch to contiguous `data`, as DeviceBuffer.read does."""
        self._compiled.device.accounts.read(data.nbytes)
        return cl.enqueue_copy(queue, data, self._temporaries[scratch], is_blocking=False)

    def problem(self, number: int) -> str:
        """Return what a launch complains of that left a number in `fault`."""
        return self._compiled.problems[number]

    def drop_arenas(self) -> None:
        """Forget the temporaries' memory, and what boundary memory was used."""
        self._temporaries.clear()
        self._images.clear()
        self._cut.clear()
        self._bound.clear()
        self._arenas = ()

    def enqueue(
        self,
        queue: cl.CommandQueue,
        boundary: Mapping[int, DeviceBuffer],
        events: list[Recorded] | None,
        places: Iterable[int] | None = None,
        *,
        in_stages: bool = False,
    ) -> cl.Event | None:
        """Enqueue every command in order, or those at `places`; return the last event.

        Keeps all events where a list is given, with `in_stages` one for every stage of a launch. Raises HalError naming
        operation, kernel and sizes.
        """
        bound = self._bound
        for operand, buffer in boundary.items():
            if bound.get(operand) != buffer.number:
                self._set(operand, buffer.handle)
                bound[operand] = buffer.number
        for seeded, i in self._seeds:
            seeded.set_arg(i, secrets.token_bytes(_SEED_BYTES))
        event = None
        at = 0
        try:
            if events is None and places is None and self._plain is not None:
                for at, kernel, global_size, local_size in self._plain:  # noqa: B007  # `at` is for errors
                    event = cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)
                return event
            for at in range(len(self._commands)) if places is None else places:
                event = self._enqueue_command(queue, at, boundary, events, in_stages) or event
        except cl.Error as error:
            raise hal_error(error, describe(self._commands[at], self._compiled.segment)) from error
        return event

    @property
    def is_one_launch(self) -> bool:
        """Whether all there is to enqueue is one launch."""
        return self._plain is not None and len(self._plain) == 1

    def _plain_launches(self) -> list[tuple[int, cl.Kernel, WorkSize, WorkSize]] | None:
        """Return place, kernel and sizes of every command, if nothing else is to be done to enqueue them."""
        plain = []
        for at, (command, kernel) in enumerate(zip(self._commands, self._kernels, strict=True)):
            if kernel is None or not isinstance(command, Launch) or id(command) in self._image_arguments:
                return None
            plain.append((at, kernel, command.global_size, command.local_size))
        return plain

    def _enqueue_command(
        self,
        queue: cl.CommandQueue,
        at: int,
        boundary: Mapping[int, DeviceBuffer],
        events: list[Recorded] | None,
        in_stages: bool,
    ) -> cl.Event | None:
        """Enqueue one command, record it, and return its last event."""
        command, kernel = self._commands[at], self._kernels[at]
        if isinstance(command, CopyBuffer) or kernel is None:
            return self._enqueue_copy(queue, command, boundary, events)
        if in_stages and events is not None and command.clock is not None:
            return self._enqueue_clocked(queue, kernel, command, events)
        if in_stages and events is not None and command.stages and id(command) not in self._image_arguments:
            return self._enqueue_stages(queue, kernel, command, events)
        for image in range(command.repeats if id(command) in self._image_arguments else 1):
            event = self._enqueue_image(queue, kernel, command, image)
            if events is not None:
                events.append((command, event))
        return event

    def _enqueue_copy(
        self,
        queue: cl.CommandQueue,
        command: Command,
        boundary: Mapping[int, DeviceBuffer],
        events: list[Recorded] | None,
    ) -> cl.Event | None:
        if not isinstance(command, CopyBuffer):
            return None
        source, destination = self._memory(command.source, boundary), self._memory(command.destination, boundary)
        event = cl.enqueue_copy(queue, destination, source, byte_count=command.destination.size_bytes)
        if events is not None:
            events.append((command, event))
        return event

    def _enqueue_clocked(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, launch: Launch, events: list[Recorded]
    ) -> cl.Event:
        """Enqueue a launch that tells the times of its tasks, and reading them, for every image."""
        progress, seen = self._zeroed[id(launch)]
        event: cl.Event
        if seen is not None and launch.repeats == 1:
            event = self._enqueue_image(queue, kernel, launch, 0)
            events.append((Clocked(launch, np.empty(seen.size // 4, np.int32), seen.view(np.int32)), event))
            return event
        for image in range(launch.repeats):
            data = np.empty(progress.size_bytes // 4, np.int32)
            events.append((Clocked(launch, data), self._enqueue_image(queue, kernel, launch, image)))
            event = progress.read(queue, data)
        return event

    def _enqueue_image(self, queue: cl.CommandQueue, kernel: cl.Kernel, launch: Launch, image: int) -> cl.Event:
        """Enqueue a launch once, on one part of each of its Images."""
        for i in self._image_arguments.get(id(launch), ()):
            kernel.set_arg(i, self._images[id(launch), i][image])
        return cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size)

    def _enqueue_stages(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, launch: Launch, events: list[Recorded]
    ) -> cl.Event:
        """Enqueue the stages of a launch one by one, so that each has its times."""
        for stage in launch.stages:
            kernel.set_arg(0, int32(stage.first))
            kernel.set_arg(1, int32(stage.last))
            event = cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size)
            part = replace(launch, operations=stage.operations, flops=stage.flops, bytes_moved=stage.bytes_moved)
            events.append((part, event))
        kernel.set_arg(0, int32(launch.stages[0].first))
        return event

    def _memory(self, operand: BoundOperand, boundary: Mapping[int, DeviceBuffer]) -> cl.Buffer:
        storage = self._compiled.storage_of(operand)
        if storage in boundary:
            return boundary[storage].handle
        return self._compiled.constant_of(operand) or self._temporaries[storage]

    def _make_kernel(self, command: Launch, program: Program) -> cl.Kernel:
        kernel = program.kernel(command.kernel.name)
        for i, argument in enumerate(command.arguments):
            if isinstance(argument, BoundOperand | Packed):
                constant = self._compiled.constant_of(argument)
                if constant is not None:
                    kernel.set_arg(i, constant)
            elif isinstance(argument, Zeroed):
                self._zeroed[id(command)] = self._compiled.device.zeros(argument.size_bytes)
                kernel.set_arg(i, self._zeroed[id(command)][0].handle)
            elif isinstance(argument, Fault):
                if self.fault is not None:
                    kernel.set_arg(i, self.fault.handle)
            elif not isinstance(argument, Scratch | Images | RandomSeed):
                kernel.set_arg(i, argument)
        return kernel

    def _set(self, memory: Memory, buffer: cl.Buffer, arena: cl.Buffer | None = None, offset: int = 0) -> None:
        """Set the arguments that are a memory; `arena`, `offset`: what the buffer is a part of, and where."""
        for kernel, i in self._uses.get(memory, ()):
            kernel.set_arg(i, buffer)
        for launch, i in self._image_uses.get(memory, ()):
            if self._cut.get((id(launch), i)) is not buffer:
                self._cut[id(launch), i] = buffer
                self._images[id(launch), i] = _parts(launch.arguments[i], arena or buffer, offset)


def _parts(argument: Argument, buffer: cl.Buffer, offset: int) -> list[cl.Buffer]:
    """Return the parts of a memory that lies in a buffer, in the order of the images."""
    if not isinstance(argument, Images):
        raise TypeError(f"{argument} is not Images")
    size = argument.size_bytes  # flags 0: those of the buffer, which may be for reading only
    return [buffer.get_sub_region(offset + at * size, size, 0) for at in range(argument.count)]


class ExecutionContext:
    """All that one execution at a time needs: memory of boundary operands, one arena, a SegmentContext per segment."""

    def __init__(self, device: DeviceContext) -> None:
        """Hold nothing yet."""
        self._device = device
        self._boundary: dict[int, DeviceBuffer] = {}
        self._arenas: tuple[DeviceBuffer, ...] = ()
        self._segments: dict[CompiledSegment, SegmentContext] = {}
        self._latest: tuple[CompiledSegment, SegmentContext] | None = None
        """The segment that was asked for last: its arena is taken."""
        self._children: dict[object, ExecutionContext] = {}
        self.last_used = time.monotonic()

    def child(self, key: object) -> ExecutionContext:
        """Return the context of a model that an operation of this one refers to."""
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = ExecutionContext(self._device)
        return found

    def segment(self, compiled: CompiledSegment) -> SegmentContext:
        """Return this context's kernel objects for a segment, with the arena taken."""
        if self._latest is not None and self._latest[0] is compiled:
            return self._latest[1]
        found = self._segments.get(compiled)
        if found is None:
            found = self._segments[compiled] = SegmentContext(compiled)
        self._reserve(compiled.arenas.sizes_bytes)
        found.use_arenas(self._arenas)
        self._latest = compiled, found
        return found

    def boundary(self, operand: int, size_bytes: int) -> DeviceBuffer:
        """Return this context's own buffer for a boundary operand, of at least that size."""
        found = self._boundary.get(operand)
        if found is None or found.size_bytes < size_bytes:
            self._boundary.pop(operand, None)
            del found  # before the larger one is made
            found = self._boundary[operand] = self._device.allocate(size_bytes)
        return found

    def retain(self, segments: Collection[CompiledSegment]) -> None:
        """Forget all segments but these."""
        self._latest = None
        self._segments = {compiled: mine for compiled, mine in self._segments.items() if compiled in segments}
        for child in self._children.values():
            child.retain(segments)

    def release_memory(self) -> None:
        """Give all memory back but that of the kernel objects."""
        self._boundary.clear()
        self._drop_arenas()
        for child in self._children.values():
            child.release_memory()

    def clear(self, queue: cl.CommandQueue) -> None:
        """Enqueue filling all memory with zeros."""
        for buffer in (*self._boundary.values(), *self._arenas):
            cl.enqueue_fill_buffer(queue, buffer.handle, np.uint8(0), 0, buffer.size_bytes)

    def _reserve(self, sizes_bytes: tuple[int, ...]) -> None:
        """Have arenas of at least these sizes; segments share them, as they run one after the other."""
        have = [arena.size_bytes for arena in self._arenas]
        if len(have) >= len(sizes_bytes) and all(a >= b for a, b in zip(have, sizes_bytes, strict=False)):
            return
        self._drop_arenas()
        sizes = [max(pair) for pair in itertools.zip_longest(have, sizes_bytes, fillvalue=0)]
        self._arenas = tuple(self._device.allocate(size) for size in sizes)

    def _drop_arenas(self) -> None:
        self._latest = None
        for segment in self._segments.values():
            segment.drop_arenas()
        self._arenas = ()


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
    """Enqueue each (kernel, local size) of freshly built programs once, on its smallest launch, then keep them.

    PoCL compiles a kernel at its first enqueue, and its binaries hold what was compiled before they were read. The
    kernels run on zeros: what memory happens to hold could be indices out of bounds.
    """
    fresh = compiled.fresh_programs()
    if not fresh:
        return
    bound = context.segment(compiled)
    boundary = {operand: context.boundary(operand, size) for operand, size in compiled.boundary.items()}
    context.clear(queue)
    bound.enqueue(queue, boundary, None, _smallest_launches(compiled, fresh))
    queue.finish()
    for program in fresh:
        compiled.device.programs.keep(program)


def _smallest_launches(compiled: CompiledSegment, programs: Collection[Program]) -> list[int]:
    """Return where the smallest launch of each (kernel, local size) of some programs stands."""
    smallest: dict[tuple[int, str, tuple[int, ...]], tuple[int, int]] = {}
    for at, (command, program) in enumerate(zip(compiled.segment.commands, compiled.programs, strict=True)):
        if program in programs and isinstance(command, Launch):
            key = (id(program), command.kernel.name, command.local_size)
            size = math.prod(command.global_size)
            smallest[key] = min(smallest.get(key, (size, at)), (size, at))
    return [at for _, at in smallest.values()]

# SPDX-License-Identifier: Apache-2.0
"""One context's kernel objects for a segment, their arguments set, and what enqueues them."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from gpu_driver.bound import BoundOperand
from gpu_driver.device.context import hal_error
from gpu_driver.execution.fault_number import FaultNumber
from gpu_driver.execution.recorded import Clocked
from gpu_driver.kernel import Fault, Images, Packed, RandomSeed, Scratch, Zeroed, int32
from gpu_driver.launch import CopyBuffer, Launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.programs import Program
    from gpu_driver.execution.compiled_segment import CompiledSegment, Memory
    from gpu_driver.execution.recorded import Recorded
    from gpu_driver.kernel import Argument, Scalar
    from gpu_driver.launch import Clock, Command, WorkSize
    from gpu_driver.lowering import Segment
    from nn_runtime.operand import Array

_SEED_BYTES = 16


class SegmentContext:
    """One execution context's kernel objects for a segment. Not for two threads at once.

    It holds no memory but the part of the arena that its kernels were last given: boundary memory belongs to the run.
    """

    def __init__(self, compiled: CompiledSegment) -> None:
        """Make one kernel object per launch, with its constant and scalar arguments set."""
        self._compiled = compiled
        self._commands = compiled.segment.commands
        self._zeroed: dict[int, DeviceBuffer] = {}
        """By identity of the launch."""
        self._stamps: dict[int, Array] = {}
        """When its tasks began and ended, by identity of a launch that is enqueued once, where the host sees it."""
        self.fault = FaultNumber(compiled.device, compiled.problems) if compiled.problems else None
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
    def complains_in_sight(self) -> bool:
        """Whether the host sees what launches complain of, if they ever do, without a read."""
        return self.fault is None or self.fault.seen is not None

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
            return self._enqueue_clocked(queue, kernel, command, command.clock, events)
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
        self, queue: cl.CommandQueue, kernel: cl.Kernel, launch: Launch, clock: Clock, events: list[Recorded]
    ) -> cl.Event:
        """Enqueue a launch that tells the times of its tasks, and reading them, for every image."""
        stamps = self._stamps.get(id(launch))
        event: cl.Event
        if stamps is not None:
            event = self._enqueue_image(queue, kernel, launch, 0)
            events.append((Clocked(launch, stamps, are_shared=True), event))
            return event
        progress = self._zeroed[id(launch)]
        for image in range(launch.repeats):
            data = np.empty(progress.size_bytes, np.uint8)
            events.append((Clocked(launch, clock.stamps(data)), self._enqueue_image(queue, kernel, launch, image)))
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
        try:
            for stage in launch.stages:
                kernel.set_arg(0, int32(stage.first))
                kernel.set_arg(1, int32(stage.last))
                event = cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size)
                part = replace(
                    launch,
                    operations=stage.operations,
                    flops=stage.flops,
                    bytes_moved=stage.bytes_moved,
                    on_bytes=stage.on_bytes,
                )
                events.append((part, event))
        finally:  # whatever interrupts them: later runs do all stages
            kernel.set_arg(0, int32(launch.stages[0].first))
            kernel.set_arg(1, int32(launch.stages[-1].last))
        return event

    def _memory(self, operand: BoundOperand, boundary: Mapping[int, DeviceBuffer]) -> cl.Buffer:
        storage = self._compiled.storage_of(operand)
        if storage in boundary:
            return boundary[storage].handle
        return self._compiled.constant_of(operand) or self._temporaries[storage]

    def _make_kernel(self, command: Launch, program: Program) -> cl.Kernel:
        kernel = program.kernel(command.kernel.name)
        for i, argument in enumerate(command.arguments):
            value = self._lasting_value(command, argument)
            if value is not None:
                kernel.set_arg(i, value)
        return kernel

    def _lasting_value(self, command: Launch, argument: Argument) -> cl.Buffer | Scalar | None:
        """Return what an argument is set to once for all; None for one that later runs or arenas set."""
        if isinstance(argument, BoundOperand | Packed):
            return self._compiled.constant_of(argument)
        if isinstance(argument, Zeroed):
            buffer, seen = self._compiled.device.zeros(argument.size_bytes)
            self._zeroed[id(command)] = buffer
            if seen is not None and command.clock is not None and command.repeats == 1:
                self._stamps[id(command)] = command.clock.stamps(seen)
            return buffer.handle
        if isinstance(argument, Fault):
            return None if self.fault is None else self.fault.buffer.handle
        return None if isinstance(argument, Scratch | Images | RandomSeed) else argument

    def _set(self, memory: Memory, buffer: cl.Buffer, arena: cl.Buffer | None = None, offset: int = 0) -> None:
        """Set the arguments that are a memory; `arena`, `offset`: what the buffer is a part of, and where."""
        for kernel, i in self._uses.get(memory, ()):
            kernel.set_arg(i, buffer)
        for launch, i in self._image_uses.get(memory, ()):
            if self._cut.get((id(launch), i)) is not buffer:
                self._cut[id(launch), i] = buffer
                self._images[id(launch), i] = _parts(launch.arguments[i], arena or buffer, offset)


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


def _parts(argument: Argument, buffer: cl.Buffer, offset: int) -> list[cl.Buffer]:
    """Return the parts of a memory that lies in a buffer, in the order of the images."""
    if not isinstance(argument, Images):
        raise TypeError(f"{argument} is not Images")
    size = argument.size_bytes  # flags 0: those of the buffer, which may be for reading only
    return [buffer.get_sub_region(offset + at * size, size, 0) for at in range(argument.count)]

# SPDX-License-Identifier: Apache-2.0
"""A segment in one execution context: its launches, what memory their arguments are set to, and what enqueues them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pyopencl as cl

from gpu_driver.device.errors import hal_error
from gpu_driver.execution.fault_number import FaultNumber
from gpu_driver.execution.launch_context import LaunchContext
from gpu_driver.launch import CopyBuffer, Launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_driver.bound import BoundOperand
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.execution.compiled_segment import CompiledSegment, Memory
    from gpu_driver.execution.recorded import Recorded
    from gpu_driver.kernel import Scratch
    from gpu_driver.launch import Command, WorkSize
    from nn_runtime.operand import Array

_SEED_BYTES = 16


class SegmentContext:
    """One execution context's launches of a segment. Not for two threads at once.

    Of memory it holds what its launches leave in it from run to run, and the part of the arena that its kernels were
    last given: boundary memory belongs to the run.
    """

    def __init__(self, compiled: CompiledSegment) -> None:
        """Make one kernel object per launch, with its constant and scalar arguments set."""
        self._compiled = compiled
        self._commands = compiled.segment.commands
        self.fault = FaultNumber(compiled.device, compiled.problems) if compiled.problems else None
        fault = None if self.fault is None else self.fault.buffer.handle
        self._launches = [
            None
            if program is None or not isinstance(command, Launch)
            else LaunchContext(command, program, compiled, fault)
            for command, program in zip(self._commands, compiled.programs, strict=True)
        ]
        self._seeds = [(launch.kernel, i) for launch in self._launches if launch is not None for i in launch.seeds]
        self._uses: dict[Memory, list[tuple[LaunchContext, int]]] = {}
        for launch, pairs in zip(self._launches, compiled.memory_arguments, strict=True):
            if launch is not None:
                for i, memory in pairs:
                    self._uses.setdefault(memory, []).append((launch, i))
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
        plan = self._compiled.arenas
        for memory, place in zip(self._compiled.temporaries, plan.places, strict=True):
            size_bytes = self._compiled.storage_size(memory)
            arena = arenas[place.arena].handle
            part = arena if plan.are_whole else arena.get_sub_region(place.offset, size_bytes, flags)
            self._temporaries[memory] = part
            self._set(memory, part, arena, place.offset)
        self._arenas = arenas

    def read_scratch(self, queue: cl.CommandQueue, scratch: Scratch, data: Array) -> cl.Event:
        """Enqueue a copy of a scratch to contiguous `data`, as DeviceBuffer.read does."""
        self._compiled.device.accounts.read(data.nbytes)
        return cl.enqueue_copy(queue, data, self._temporaries[scratch], is_blocking=False)

    def drop_arenas(self) -> None:
        """Forget the temporaries' memory, and what boundary memory was used."""
        self._temporaries.clear()
        for launch in self._launches:
            if launch is not None:
                launch.forget_memory()
        self._bound.clear()
        self._arenas = ()

    def let_go(self, operands: Iterable[int]) -> None:
        """Hold no boundary memory of these operands: launches do that which take one image after the other."""
        if self._plain is None:
            for operand in operands:
                self._bound.pop(operand, None)
                for launch, i in self._uses.get(operand, ()):
                    launch.forget_parts(i)

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

        Keeps all events where a list is given, with `in_stages` such as tell the time of every stage of a launch.
        Raises HalError naming operation, kernel and sizes.
        """
        bound = self._bound
        for operand, buffer in boundary.items():
            if bound.get(operand) != buffer.number:
                bound.pop(operand, None)  # an interrupt may leave arguments of which some are set
                self._set(operand, buffer.handle, buffer.handle, 0)
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
                launch = self._launches[at]
                if launch is None:
                    event = self._enqueue_copy(queue, self._commands[at], boundary, events) or event
                else:
                    event = launch.enqueue(queue, events, in_stages=in_stages)
        except cl.Error as error:
            raise hal_error(error, describe(self._commands[at])) from error
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
        for at, launch in enumerate(self._launches):
            if launch is None or launch.reads_images or launch.launch.is_persistent:
                return None
            plain.append((at, launch.kernel, launch.launch.global_size, launch.launch.local_size))
        return plain

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

    def _memory(self, operand: BoundOperand, boundary: Mapping[int, DeviceBuffer]) -> cl.Buffer:
        storage = self._compiled.storage_of(operand)
        if storage in boundary:
            return boundary[storage].handle
        return self._compiled.constant_of(operand) or self._temporaries[storage]

    def _set(self, memory: Memory, buffer: cl.Buffer, whole: cl.Buffer, offset: int) -> None:
        """Set the arguments that are a memory, which lies at `offset` of a whole buffer."""
        for launch, i in self._uses.get(memory, ()):
            launch.set_memory(i, buffer, whole, offset)


def describe(command: Command) -> str:
    """Return `operation 7: softmax.cl:softmax {'T': 'float'}, global (64, 2), local (64, 1)` for error messages."""
    operations = ", ".join(str(at) for at in command.operations)
    if not isinstance(command, Launch):
        return f"operation {operations}: copy of {command.destination.size_bytes} bytes"
    kernel = command.kernel
    return (
        f"operation {operations}: {kernel.source}:{kernel.name} {dict(kernel.defines)}, "
        f"global {command.global_size}, local {command.local_size}"
    )

# SPDX-License-Identifier: Apache-2.0
"""A segment made ready, once for all contexts: programs built, constants uploaded, arenas planned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from gpu_driver.bound import BoundOperand
from gpu_driver.device.buffers import Lifetime, plan_arenas, plan_whole_buffers
from gpu_driver.device.programs import ProgramBuildError
from gpu_driver.kernel import Fault, Images, Packed, Scratch, constant_in
from gpu_driver.launch import Launch, arguments_of
from nn_runtime.hal.types import ErrorStatus, HalError

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyopencl as cl

    from gpu_driver.device.buffers import ArenaPlan
    from gpu_driver.device.context import DeviceContext
    from gpu_driver.device.device_memory import DeviceBuffer
    from gpu_driver.device.programs import Launched, Program
    from gpu_driver.kernel import Argument
    from gpu_driver.lowering import Segment

Memory: TypeAlias = "int | Scratch"
"""A piece of device memory that commands name: an operand's storage, or a scratch object."""


class CompiledSegment:
    """A segment with its programs built, its constants uploaded and its arena planned; shared by all contexts.

    `boundary`: size in bytes of each boundary operand that it reads or writes. `problems`: what its launches may
    complain of, by number of the fault.
    """

    def __init__(self, device: DeviceContext, segment: Segment) -> None:
        """Build and upload; raises HalError naming the operation that does not build, or what does not fit."""
        self.device = device
        # The steps' constants need not stay in the host's memory.
        commands = (replace(one, steps=()) if isinstance(one, Launch) else one for one in segment.commands)
        self.segment = segment = replace(segment, commands=tuple(commands))
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
            sum(self.boundary.values())
            + sum(self.arenas.sizes_bytes)
            + sum(constant.size_bytes for constant in constants.values())
        )
        device.check_room(needed, "the model")
        self.programs = self._build_programs()
        for identity, constant in constants.items():
            self._uploaded[identity] = device.constant(constant)
            constant.forget()

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
        launched: dict[tuple[str, tuple[tuple[str, str | int], ...]], set[Launched]] = {}
        for command in self.segment.commands:
            if isinstance(command, Launch):
                kernel = command.kernel
                launched.setdefault((kernel.source, kernel.defines), set()).add((kernel.name, command.local_size))
        return [
            self._build_program(command, launched[command.kernel.source, command.kernel.defines])
            if isinstance(command, Launch)
            else None
            for command in self.segment.commands
        ]

    def _build_program(self, launch: Launch, announced: Collection[Launched]) -> Program:
        """Return the program of a launch; `announced`: names and local sizes of all kernels that it is built for."""
        kernel = launch.kernel
        try:
            return self.device.programs.get(kernel.source, dict(kernel.defines), announced)
        except ProgramBuildError as error:
            where = ", ".join(str(at) for at in launch.operations)
            raise HalError(ErrorStatus.GENERAL_FAILURE, f"operation {where}: {error.summary}") from error

    def _sort_arguments(self) -> tuple[dict[int, Packed], list[list[tuple[int, Memory]]]]:
        """Return constants by identity of its argument, and (argument index, memory) for every command."""
        constants: dict[int, Packed] = {}
        memory: list[list[tuple[int, Memory]]] = []
        for command in self.segment.commands:
            memory.append([])
            for i, argument in enumerate(arguments_of(command)):
                constant = constant_in(argument)
                if constant is not None:
                    constants[id(argument)] = constant
                    continue
                named = self._memory_of(argument)
                if named is not None:
                    memory[-1].append((i, named))
        return constants, memory

    def _memory_of(self, argument: Argument) -> Memory | None:
        """Return the memory that an argument is or is cut from, None for one that has none in the arena or outside."""
        whole = argument.whole if isinstance(argument, Images) else argument
        if isinstance(whole, BoundOperand):
            return self.storage_of(whole)
        return whole if isinstance(whole, Scratch) else None

    def _plan_arenas(self) -> tuple[list[Memory], ArenaPlan]:
        first: dict[Memory, int] = {}
        last: dict[Memory, int] = {}
        for at, pairs in enumerate(self.memory_arguments):
            for _, memory in pairs:
                if isinstance(memory, Scratch) or memory not in self.boundary:
                    first.setdefault(memory, at)
                    last[memory] = at
        if self.segment.measured is not None:  # the host reads it when all commands are done
            last[self.segment.measured.status] = len(self.memory_arguments) - 1
        temporaries = list(first)
        lifetimes = [Lifetime(self.storage_size(m), first[m], last[m]) for m in temporaries]
        profile = self.device.profile
        if not profile.is_cpu:
            return temporaries, plan_whole_buffers(lifetimes)
        return temporaries, plan_arenas(lifetimes, max(64, profile.mem_base_addr_align_bytes), profile.max_alloc_bytes)

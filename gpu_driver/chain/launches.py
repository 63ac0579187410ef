# SPDX-License-Identifier: Apache-2.0
"""Launches of chain.cl: steps put together."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver.bound import BoundOperand
from gpu_driver.chain.dynamic import made_once
from gpu_driver.chain.elementwise import words
from gpu_driver.chain.elementwise_fusion import fused
from gpu_driver.chain.epilogues import with_epilogues
from gpu_driver.chain.expanded import joined
from gpu_driver.chain.images import one_image, steps_by_image
from gpu_driver.chain.kinds import Kind
from gpu_driver.chain.memory import ALIGNMENT, BUFFERS, Memories, Placement
from gpu_driver.chain.order import gathered
from gpu_driver.chain.parts import without_copies
from gpu_driver.chain.schedule import schedule
from gpu_driver.chain.step import CONSTANTS, CONVERSIONS, GEOMETRY, STEP_FIELDS, VALUES
from gpu_driver.chain.tasks import tasks_of, unit_of, unit_of_epilogue
from gpu_driver.chain.tiles import FEW_REGISTERS, Tiles, tiles_for, tiles_of_kernel
from gpu_driver.chain.truths import with_truths
from gpu_driver.convolution.packing import depthwise_block
from gpu_driver.kernel import Images, Packed, Scratch, Zeroed, int32
from gpu_driver.launch import Clock, Launch, Stage, Steps, memories_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpu_driver.chain.step import Memory, Step
    from gpu_driver.chain.tasks import Task
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument, Kernel
    from gpu_driver.launch import Command
    from nn_runtime.operand import Array

LINE_WORDS = 32
LEAST_GENERAL = 4
"""So many operations that are no products are worth the program of a chain."""


def redirected(all_of_it: Steps, memory: Mapping[Memory, Memory]) -> Steps:
    """Return steps on scratch memory in the place of operands."""
    return Steps(tuple(step.on(memory) for step in all_of_it.steps))


def merge(
    commands: Sequence[Command | Steps],
    storage: Mapping[int, int],
    boundary: Collection[int],
    unchanged: Collection[int],
    device: DeviceProfile,
) -> list[Command]:
    """Put neighbouring steps together, and launches that could be steps; other launches give way where they can.

    storage: the operand whose memory an operand uses, where it is another; boundary: operands used elsewhere too;
    unchanged: operands whose memory none of the commands writes.
    """
    commands = with_truths(commands, functools.partial(_key, storage), boundary)
    commands = gathered(commands, functools.partial(_key, storage), unchanged)
    merger = _Merger(commands, storage, boundary, device)
    runs: list[range] = []
    while not runs or runs[-1].stop < len(commands):
        start = runs[-1].stop if runs else 0
        runs.append(range(start, _end_of_run(merger, start, len(commands))))
    merger.find_programs(runs)
    return [command for run in runs for command in merger.joined(run)]


class _Merger:
    def __init__(
        self,
        commands: Sequence[Command | Steps],
        storage: Mapping[int, int],
        boundary: Collection[int],
        device: DeviceProfile,
    ) -> None:
        self._commands = commands
        self._storage = storage
        self._boundary = boundary
        self._device = device
        self._steps_of = [
            tuple(replace(step, operations=command.operations) for step in command.steps)
            if isinstance(command, Launch | Steps)
            else ()
            for command in commands
        ]
        self._tiles = tiles_for([step for steps in self._steps_of for step in steps], device)
        self._programs: dict[Kernel, Kernel] = {}
        self._used: dict[int, tuple[int, int]] = {}
        for at, command in enumerate(commands):
            of_steps = (memory for step in self._steps_of[at] for memory in step.memories)  # scratch of its own, too
            for memory in (*memories_of(command), *of_steps):
                first, _ = self._used.setdefault(self._key(memory), (at, at))
                self._used[self._key(memory)] = first, at

    def find_programs(self, runs: Sequence[Sequence[int]]) -> None:
        """Find what each kernel must know for all runs that are worth a program: it can do others then, too."""
        worth = [step for run in runs if self._is_worth_a_program(run) for step in self._steps(run)]
        self._programs = {
            kernel: _program_of(kernel, [step for step in worth if step.kernel == kernel], self._device)
            for kernel in {step.kernel for step in worth}
        }

    def joined(self, run: Sequence[int]) -> list[Command]:
        """Return one command that does what those of a run do, several where it would need too large a buffer."""
        steps = self._steps(run)
        if not (steps and self._has_program(steps)):
            return [self._alone(at) for at in run]
        launches = self._launches(steps, self._memories(run))
        owned = (one for launch in launches for one in launch.arguments if isinstance(one, Scratch | Packed))
        if max((one.size_bytes for one in owned), default=0) <= self._device.max_alloc_bytes:
            return [*launches]
        if len(run) == 1:
            return [self._alone(run[0])]
        middle = len(run) // 2
        return [*self.joined(run[:middle]), *self.joined(run[middle:])]

    def _is_worth_a_program(self, run: Sequence[int]) -> bool:
        """Whether a run has what only chain.cl does, or so many operations that their own programs take longer."""
        least = LEAST_GENERAL if all(step.is_general or step.kind in CONVERSIONS for step in self._steps(run)) else 2
        return len(run) >= least or any(isinstance(self._commands[at], Steps) for at in run)

    def _has_program(self, steps: Sequence[Step]) -> bool:
        program = self._programs.get(steps[0].kernel)
        return program is not None and (("GENERAL", 1) in program.defines or not any(step.is_general for step in steps))

    def _alone(self, at: int) -> Command:
        command = self._commands[at]
        if not isinstance(command, Steps):
            return command
        return self._one_launch(self._steps_of[at], self._memories((at,)))

    def _launches(self, steps: tuple[Step, ...], memories: Memories) -> list[Launch]:
        """Return one launch, or one for the steps that are done image by image and one for the others."""
        n = steps_by_image(steps, memories, self._device)
        if n:
            first = memories.only_within(steps[:n], steps[n:])
            others = memories.only_within(steps[n:], steps[:n])
            if max(first.outer_count, others.outer_count) < BUFFERS:
                of_image = one_image(steps[:n])
                parts: dict[Memory, int] = {
                    one: first.key(one.whole) for step in of_image for one in step.memories if isinstance(one, Images)
                }
                launches = [self._launch(of_image, Memories(parts, first.inner))]
                return [*launches, self._launch(steps[n:], others)] if n < len(steps) else launches
        return [self._launch(steps, memories)]

    def _launch(self, steps: tuple[Step, ...], memories: Memories) -> Launch:
        steps = made_once(fused(without_copies(steps, memories), memories), memories)
        steps = joined(steps, memories, self._device.compute_units)
        return self._one_launch(with_epilogues(steps, memories), memories)

    def _one_launch(self, steps: tuple[Step, ...], memories: Memories) -> Launch:
        return _launch(steps, memories, self._device, self._tiles, self._programs[steps[0].kernel])

    def steps_of(self, at: int) -> tuple[Step, ...]:
        """Return what a command does, if it can be joined with others."""
        return self._steps_of[at]

    def memories_of(self, at: int) -> tuple[set[int], set[int]]:
        """Return what a command reads or writes, and what of this is written."""
        steps = self._steps_of[at]
        every = {self._key(memory) for step in steps for memory in step.memories}
        return every, {self._key(step.output) for step in steps}

    def is_inside(self, key: int, start: int, end: int) -> bool:
        """Whether nobody but commands start .. end uses a memory."""
        first, last = self._used[key]
        return key not in self._boundary and start <= first and last <= end

    @property
    def most_commands(self) -> int:
        """How many commands may be one launch."""
        return self._device.tuning.chain_steps

    def _steps(self, run: Sequence[int]) -> tuple[Step, ...]:
        return tuple(step for at in run for step in self._steps_of[at])

    def _memories(self, run: Sequence[int]) -> Memories:
        """Return the memories of a run; inner ones are those that are written and nobody else uses."""
        steps = self._steps(run)
        written = {self._key(step.output) for step in steps}
        return Memories(
            {memory: self._key(memory) for step in steps for memory in step.memories},
            frozenset(key for key in written if self.is_inside(key, run[0], run[-1])),
        )

    def _key(self, memory: Memory) -> int:
        return _key(self._storage, memory)


def _key(storage: Mapping[int, int], memory: Memory) -> int:
    """Return what stands for the memory: an operand, or a number that none has."""
    return storage.get(memory.index, memory.index) if isinstance(memory, BoundOperand) else -id(memory)


def _end_of_run(merger: _Merger, start: int, stop: int) -> int:
    """Return the end of the longest run from `start` on that one launch can do.

    What is made and read within a run needs no buffer of its own, so that a longer run may need fewer.
    """
    run = _Run(merger, start)
    end = start
    for at in range(start, min(stop, start + merger.most_commands)):
        if not run.takes(at):
            break
        if at == start or run.buffers < BUFFERS:
            end = at + 1
    return end


class _Run:
    """Commands that can be one launch if it has the buffers, as they are found one after the other."""

    def __init__(self, merger: _Merger, start: int) -> None:
        self._start = start
        self._merger = merger
        self._written: set[int] = set()
        self._outer: set[int] = set()
        self._has_images = self._has_general = False

    @property
    def buffers(self) -> int:
        """How many memories are not its own."""
        return len(self._outer)

    def takes(self, at: int) -> bool:
        """Take the next command if it is of the same kind as those before; the first is."""
        merger, steps = self._merger, self._merger.steps_of(at)
        # Convolutions of several images are done image by image, other steps are not.
        self._has_general |= any(step.is_general for step in steps)
        self._has_images |= any(step.geometry.batches > 1 for step in steps if step.goes_by_images)
        if at > self._start:
            before = merger.steps_of(self._start)
            same = bool(before and steps) and before[0].kernel == steps[0].kernel
            if not same or (self._has_images and self._has_general):
                return False
        every, written = merger.memories_of(at)
        self._written |= written
        self._outer |= every
        self._outer -= {key for key in every & self._written if merger.is_inside(key, self._start, at)}
        return True


def _launch(
    steps: tuple[Step, ...], memories: Memories, device: DeviceProfile, tiles: Tiles, program: Kernel
) -> Launch:
    """Return the launch of several steps; what only they use lies in the chain's own memory."""
    tiles = tiles_of_kernel(tiles, program)
    steps = tuple(replace(step, tile_pixels=tiles.pixels) for step in steps)
    placed = Placement(steps, memories)
    tasks = _tasks(steps, memories, device)
    queues = 1 + max(task.queue for part in tasks for task in part)
    table, constants = _tables(steps, placed)
    scheduled = schedule(steps, tasks, queues, placed, table[:, STEP_FIELDS.index("weights")])
    stages = tuple(
        Stage(step.name, step.operations, at, at + 1, step.flops, step.bytes_moved, step.on_bytes)
        for at, step in enumerate(steps)
    )
    lines = -(-max(step.work_bytes for step in steps) // ALIGNMENT)
    arguments: tuple[Argument, ...] = (
        *(int32(0), int32(len(steps)), int32(len(steps)), int32(queues)),
        *(Packed(table), Packed(scheduled.rows), Packed(scheduled.starts), Packed(scheduled.waits), Packed(*constants)),
        Zeroed(4 * LINE_WORDS * (1 + queues + len(scheduled.rows))),
        *placed.buffers,
        Scratch(lines * queues * ALIGNMENT) if lines else placed.buffers[0],
        int32(lines),
    )
    return Launch(
        _clocked(replace(program, defines=(*program.defines, *tiles.defines())), device),
        arguments,
        (queues,),
        (1,),
        flops=sum(step.flops for step in steps),
        bytes_moved=sum(step.bytes_moved for step in steps),
        operations=tuple(operation for step in steps for operation in step.operations),
        steps=steps,
        stages=stages,
        clock=Clock(LINE_WORDS, 1 + queues, tuple(scheduled.rows[:, 0].tolist())) if device.cycle_counter else None,
        on_bytes=any(step.on_bytes for step in steps),
    )


def _tasks(steps: Sequence[Step], memories: Memories, device: DeviceProfile) -> list[list[Task]]:
    """Cut every step, where it can be like the one that makes its source."""
    made: dict[int, list[Task]] = {}
    tasks = []
    for step in steps:
        found = tasks_of(step, device.compute_units, device.tuning, made.get(memories.key(step.source), ()))
        tasks.append(found)
        made[memories.key(step.output)] = found
    return tasks


def _program_of(kernel: Kernel, steps: Sequence[Step], device: DeviceProfile) -> Kernel:
    """Return the kernel that knows how to do all steps: compiling what few networks use takes time."""
    if any(step.kind == Kind.MULTIPLY_BYTES for step in steps):
        kernel = replace(kernel, defines=tuple({**dict(kernel.defines), "DOT4": device.dot4_of_vectors}.items()))
    depthwise = [step for step in steps if step.kind == Kind.DEPTHWISE_BYTES]
    has_few = any(2 * step.geometry.input_depth < depthwise_block(step.dot4) for step in depthwise)
    if device.registers > FEW_REGISTERS:  # with few of them real numbers are as fast tap by tap
        depthwise += [step for step in steps if step.kind == Kind.DEPTHWISE]
    rare = (
        ("WINOGRAD", int(any(step.is_winograd for step in steps))),
        ("DEPTHWISE_FEW", int(has_few)),
        ("DEPTHWISE_REST", int(any(step.has_weights_beyond_bytes for step in depthwise))),
        ("DEPTHWISE5", int(any(step.geometry.filter_width == 5 for step in depthwise))),
        ("GENERAL", int(any(step.is_general for step in steps))),
    )
    return replace(kernel, defines=(*kernel.defines, *rare))


def _clocked(kernel: Kernel, device: DeviceProfile) -> Kernel:
    """Return the kernel that leaves the times of its tasks, on devices that can."""
    return replace(kernel, defines=(*kernel.defines, ("CLOCK", 1))) if device.cycle_counter else kernel


def _tables(steps: Sequence[Step], placed: Placement) -> tuple[Array, list[Array]]:
    """Return the steps as chain.cl takes them [steps, fields], and the bytes of all constants, in order."""
    befores = [step.before for step in steps if step.before is not None]
    epilogues = [(step.epilogue, unit_of_epilogue(step)) for step in steps if step.epilogue is not None]
    every = [*((step, unit_of(step)) for step in steps), *((step, (0, 0)) for step in befores), *epilogues]
    table = np.zeros((len(every), len(STEP_FIELDS)), np.int32)
    constants = _Constants()
    before = len(steps)
    epilogue = before + len(befores)
    for row, (step, unit) in zip(table, every, strict=True):
        positions = [constants.place(data) for data in step.constants]
        positions += [0] * (len(CONSTANTS) - len(positions))
        memories = (step.source, step.output, step.residual or step.source, step.third or step.source)
        places = (number for memory in memories for number in placed.place(memory))
        related = before, epilogue if step.epilogue else 0
        before += step.before is not None
        epilogue += step.epilogue is not None
        sizes = (getattr(step.geometry, name) for name in GEOMETRY)
        units = dict(zip(("unit_pixels", "unit_channels"), unit, strict=True))
        row[:] = [step.kind, *places, *related, *positions, *sizes, *words({**step.values, **units}, VALUES)]
    return table, constants.parts or [np.zeros(ALIGNMENT, np.uint8)]


class _Constants:
    """The constants of all steps, one after the other; equal ones, as unrolled loops have them, are there once."""

    def __init__(self) -> None:
        self.parts: list[Array] = []
        self._end = 0
        self._placed: dict[tuple[int, bytes], list[tuple[Array, int]]] = {}

    def place(self, data: Array) -> int:
        """Return where an array lies, in units of ALIGNMENT; it is put there if it is new."""
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        alike = self._placed.setdefault((flat.size, flat[:ALIGNMENT].tobytes()), [])
        for other, place in alike:
            if np.array_equal(other, flat):
                return place
        alike.append((flat, self._end))
        self.parts += [flat, np.zeros(-flat.size % ALIGNMENT, np.uint8)]
        self._end += -(-flat.size // ALIGNMENT)
        return alike[-1][1]

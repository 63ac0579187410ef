# SPDX-License-Identifier: Apache-2.0
"""Chains: packed convolutions and what joins them in one launch of chain.cl, for CPU-type devices.

Every step is cut into tasks. Work-groups, one per core, take task after task in order and wait, spinning, until the
tasks that made what they read are done. So the host has one kernel to enqueue, no core sleeps between steps, and a
step begins while the one before still runs. One group alone would end too: tasks wait for earlier ones only.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpu_driver.bound import BoundOperand
from gpu_driver.buffers import Lifetime, plan_arenas
from gpu_driver.launch import Launch, Packed, Scratch, Stage, Zeroed, int32

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Argument, Command, Kernel
    from nn_runtime.operand import Array
    from nn_runtime.operations.sliding_window import SlidingWindow

Memory: TypeAlias = "BoundOperand | Scratch"
Span: TypeAlias = tuple[int, int]
"""First and behind the last."""

CONVOLVE, DEPTHWISE, FLIP_SIGNS, AVERAGE = 0, 1, 2, 3
BUFFERS = 8
"""Buffers of a chain; the first is its own memory for what stays inside."""
ALIGNMENT = 64
"""Bytes, of constants and of tensors in a chain's own memory."""
TILE_PIXELS = 7
CONVOLUTION_BLOCK, DEPTHWISE_BLOCK = 32, 16
TASKS_PER_CORE, TASKS_PER_CORE_OF_LARGE_STEPS = 2, 4
"""More even out cores that are not equally fast; fewer share staged inputs and weights longer."""
LARGE_STEP_FLOPS = 8_000_000
"""For each core."""
PROGRESS_WORDS = 16
TURNS_PER_NS = 2
"""Of a waiting loop."""
LEAST_PATIENCE, MOST_PATIENCE = 100_000, 1 << 30
"""Turns that a group waits for a task before it leaves the rest to the others: between them what a slow core needs."""
SLOW_FLOPS_PER_NS, SLOW_BYTES_PER_NS = 25.0, 2.5

PLACES = ("kind", "src", "src_offset", "dst", "dst_offset", "residual", "residual_offset")
CONSTANTS = ("weights", "bias", "multipliers", "shifts", "roundings")
GEOMETRY = (
    *("batches", "input_height", "input_width", "input_depth", "output_height", "output_width", "output_depth"),
    *("filter_height", "filter_width", "stride_height", "stride_width", "dilation_height", "dilation_width"),
    *("padding_top", "padding_left"),
)
VALUES = (
    *("chunk", "weight_offset", "zero_in", "zero_out", "rounds_at_once", "low", "high"),
    *("has_residual", "zero_residual", "left_shift"),
    *("multiplier_product", "exponent_product", "multiplier_residual", "exponent_residual"),
    *("multiplier_sum", "exponent_sum", "rounding_sum", "low_sum", "high_sum"),
)
STEP_FIELDS = (*PLACES, *CONSTANTS, *GEOMETRY, *VALUES)
"""Fields of `Step` in common/chain_step.h, four bytes each."""


@dataclass(frozen=True, eq=False)
class Step:
    """One operation of a chain.

    constants: weights, bias, and for quantised ones multipliers, shifts, roundings. values: by name of VALUES those
    that are not 0; float ones for float and half.
    """

    kernel: Kernel
    kind: int
    source: Memory
    output: Memory
    residual: Memory | None
    geometry: SlidingWindow
    constants: tuple[Array, ...]
    values: Mapping[str, int | float]
    flops: int
    bytes_moved: int
    operations: tuple[int, ...] = ()

    @property
    def by_channel(self) -> bool:
        """Whether every output channel reads its input channel only."""
        return self.kind in (DEPTHWISE, AVERAGE)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """What it reads and writes."""
        return (self.source, self.output) if self.residual is None else (self.source, self.output, self.residual)

    @property
    def input_shape(self) -> tuple[int, int]:
        """Pixels and channels of the input."""
        g = self.geometry
        return g.batches * g.input_height * g.input_width, g.input_depth

    @property
    def output_shape(self) -> tuple[int, int]:
        """Pixels and channels of the output."""
        g = self.geometry
        return g.batches * g.output_height * g.output_width, g.output_depth


@dataclass(frozen=True)
class Task:
    """A part of a step: tiles or rows `x` and blocks of channels `y` as chain.cl counts them, and what it writes."""

    x: Span
    y: Span
    pixels: Span
    channels: Span


def single(step: Step, device: DeviceProfile) -> Launch:
    """Return the launch of one step."""
    return _launch((step,), {one: id(one) for one in step.memories}, frozenset(), device)


def redirected(launch: Launch, memory: Mapping[BoundOperand, Scratch], device: DeviceProfile) -> Launch:
    """Return the launch of one step on scratch memory in the place of operands."""
    (step,) = launch.steps
    source, output, *residual = (
        memory.get(one, one) if isinstance(one, BoundOperand) else one for one in step.memories
    )
    return single(replace(step, source=source, output=output, residual=residual[0] if residual else None), device)


def merge(
    commands: Sequence[Command], storage: Mapping[int, int], boundary: Collection[int], device: DeviceProfile
) -> list[Command]:
    """Put neighbouring launches of steps together.

    storage: the operand whose memory an operand uses, where it is another; boundary: operands used elsewhere too.
    """
    merger = _Merger(commands, storage, boundary, device)
    merged: list[Command] = []
    run: list[int] = []
    for at in range(len(commands)):
        if run and not merger.fits([*run, at]):
            merged += merger.joined(run)
            run = []
        run.append(at)
    return [*merged, *merger.joined(run)] if run else merged


def tasks_of(step: Step, cores: int) -> list[Task]:
    """Cut a step into tasks; rows first, for channels share what is staged."""
    pixels, depth = step.output_shape
    if step.by_channel:
        row, block = step.geometry.output_width, DEPTHWISE_BLOCK
    else:
        row, block = TILE_PIXELS, CONVOLUTION_BLOCK if step.kind == CONVOLVE else depth
    rows, blocks = -(-pixels // row), -(-depth // block)
    is_large = step.flops > LARGE_STEP_FLOPS * cores
    wanted = cores * (TASKS_PER_CORE_OF_LARGE_STEPS if is_large else TASKS_PER_CORE)
    bands = min(rows, wanted)
    return [
        Task(x, y, (x[0] * row, min(x[1] * row, pixels)), (y[0] * block, y[1] * block))
        for x in _cuts(rows, bands)
        for y in _cuts(blocks, min(blocks, -(-wanted // bands)))
    ]


def reads_of(step: Step, task: Task) -> tuple[Span, Span]:
    """Return the input pixels (over all images, row-major) and channels that a task reads."""
    g = step.geometry
    channels = (0, g.input_depth)
    if step.by_channel:  # its last block overlaps the one before
        channels = (max(0, task.channels[0] - DEPTHWISE_BLOCK), task.channels[1])
    pointwise = (g.filter_height, g.filter_width, g.stride_height, g.stride_width) == (1, 1, 1, 1)
    if pointwise and step.input_shape[0] == step.output_shape[0]:
        return task.pixels, channels

    def row(pixel: int, tap: int) -> int:
        b, oy = divmod(pixel // g.output_width, g.output_height)
        y = oy * g.stride_height - g.padding_top + tap * g.dilation_height
        return b * g.input_height + min(max(y, 0), g.input_height - 1)

    first, last = row(task.pixels[0], 0), row(task.pixels[1] - 1, g.filter_height - 1)
    return (first * g.input_width, (last + 1) * g.input_width), channels


class _Merger:
    def __init__(
        self,
        commands: Sequence[Command],
        storage: Mapping[int, int],
        boundary: Collection[int],
        device: DeviceProfile,
    ) -> None:
        self._commands = commands
        self._storage = storage
        self._boundary = boundary
        self._device = device
        self._users: dict[int, set[int]] = {}
        for at, command in enumerate(commands):
            arguments = command.arguments if isinstance(command, Launch) else (command.source, command.destination)
            for memory in arguments:
                if isinstance(memory, BoundOperand | Scratch):
                    self._users.setdefault(self._key(memory), set()).add(at)

    def fits(self, run: Sequence[int]) -> bool:
        """Whether the commands of a run can be one launch, if all but the last can."""
        first, last = self._steps(run[:1]), self._steps(run[-1:])
        return bool(first and last) and first[0].kernel == last[0].kernel and len(self._outer(run)) < BUFFERS

    def joined(self, run: Sequence[int]) -> list[Command]:
        """Return one command that does what those of a run do, or those where it would need too large a buffer."""
        steps = self._steps(run)
        if len(run) > 1:
            keys = {memory: self._key(memory) for step in steps for memory in step.memories}
            launch = _launch(steps, keys, self._inner(run), self._device)
            sizes = (one.size_bytes for one in launch.arguments if isinstance(one, Scratch))
            if max(sizes, default=0) <= self._device.max_alloc_bytes:
                return [launch]
        return [self._commands[at] for at in run]

    def _steps(self, run: Sequence[int]) -> tuple[Step, ...]:
        launches = [command for at in run if isinstance(command := self._commands[at], Launch)]
        return tuple(replace(step, operations=launch.operations) for launch in launches for step in launch.steps)

    def _inner(self, run: Sequence[int]) -> frozenset[int]:
        """Return the memories that only the run uses."""
        written = {self._key(step.output) for step in self._steps(run)}
        return frozenset(key for key in written if key not in self._boundary and self._users[key] <= set(run))

    def _outer(self, run: Sequence[int]) -> set[int]:
        return {self._key(memory) for step in self._steps(run) for memory in step.memories} - self._inner(run)

    def _key(self, memory: Memory) -> int:
        """Return what stands for the memory: an operand, or a number that none has."""
        return self._storage.get(memory.index, memory.index) if isinstance(memory, BoundOperand) else -id(memory)


def _launch(
    steps: tuple[Step, ...], keys: Mapping[Memory, int], inner: frozenset[int], device: DeviceProfile
) -> Launch:
    """Return the launch of several steps; keys: equal for equal memory; inner: what lies in the chain's own memory."""
    placed = _Placement(steps, keys, inner)
    tasks = [tasks_of(step, device.compute_units) for step in steps]
    starts: list[int] = np.cumsum([0, *(len(part) for part in tasks)]).tolist()
    table, constants = _tables(steps, placed)
    rows = np.array(_task_rows(steps, tasks, starts, placed), np.int32)
    stages = [
        Stage(step.operations, starts[at], starts[at + 1], step.flops, step.bytes_moved)
        for at, step in enumerate(steps)
    ]
    arguments: tuple[Argument, ...] = (
        *(int32(0), int32(starts[-1])),
        *(Packed(table), Packed(rows), Packed(constants), Zeroed(4 * (PROGRESS_WORDS + starts[-1]))),
        *placed.buffers,
    )
    return Launch(
        steps[0].kernel,
        arguments,
        (min(device.compute_units, starts[-1]),),
        (1,),
        sum(step.flops for step in steps),
        sum(step.bytes_moved for step in steps),
        tuple(operation for step in steps for operation in step.operations),
        steps,
        tuple(stages) if len(stages) > 1 else (),
    )


class _Placement:
    """Where the memories of a chain's steps lie: in its own memory by lifetime, or in a buffer of their own."""

    def __init__(self, steps: Sequence[Step], keys: Mapping[Memory, int], inner: frozenset[int]) -> None:
        self._keys = keys
        self._uses: dict[int, list[int]] = {}
        sizes: dict[int, int] = {}
        outer: dict[int, Memory] = {}
        for at, step in enumerate(steps):
            for memory in step.memories:
                key = keys[memory]
                if key not in inner:
                    outer.setdefault(key, memory)
                    continue
                self._uses.setdefault(key, []).append(at)
                sizes[key] = max(sizes.get(key, 1), memory.size_bytes)
        lifetimes = [Lifetime(sizes[key], uses[0], uses[-1]) for key, uses in self._uses.items()]
        plan = plan_arenas(lifetimes, ALIGNMENT, 1 << 62)
        self._spans = {
            key: (place.offset, place.offset + sizes[key]) for key, place in zip(self._uses, plan.places, strict=True)
        }
        self._slots = {key: slot for slot, key in enumerate(outer, 1)}
        own = Scratch(plan.sizes_bytes[0]) if plan.sizes_bytes else next(iter(outer.values()))
        self.buffers: tuple[Memory, ...] = (own, *outer.values(), *[own] * (BUFFERS - 1 - len(outer)))

    def place(self, memory: Memory) -> tuple[int, int]:
        """Return the number of the buffer, and the offset in units of ALIGNMENT."""
        key = self._keys[memory]
        return (0, self._spans[key][0] // ALIGNMENT) if key in self._spans else (self._slots[key], 0)

    def same(self, first: Memory, second: Memory) -> bool:
        """Whether two are the same memory."""
        return self._keys[first] == self._keys[second]

    def users_before(self, memory: Memory, at: int) -> Span | None:
        """Return the steps before `at` that used the place of memory which step `at` writes first, for other memory."""
        key = self._keys[memory]
        if key not in self._spans:
            return None
        begin, end = self._spans[key]
        others = [
            uses
            for other, uses in self._uses.items()
            if other != key and uses[-1] < at and self._spans[other][0] < end and begin < self._spans[other][1]
        ]
        return (min(uses[0] for uses in others), max(uses[-1] for uses in others) + 1) if others else None


def _tables(steps: Sequence[Step], placed: _Placement) -> tuple[Array, Array]:
    """Return the steps as chain.cl takes them [steps, fields], and all constants one after the other, in bytes."""
    table = np.zeros((len(steps), len(STEP_FIELDS)), np.int32)
    parts: list[Array] = []
    end = 0
    for row, step in zip(table, steps, strict=True):
        positions = []
        for data in step.constants:
            positions.append(end // ALIGNMENT)
            flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            parts += [flat, np.zeros(-flat.size % ALIGNMENT, np.uint8)]
            end += -(-flat.size // ALIGNMENT) * ALIGNMENT
        positions += positions[-1:] * (len(CONSTANTS) - len(positions))  # never used, but read
        residual = step.source if step.residual is None else step.residual
        places = *placed.place(step.source), *placed.place(step.output), *placed.place(residual)
        sizes = (getattr(step.geometry, name) for name in GEOMETRY)
        values = (step.values.get(name, 0) for name in VALUES)
        row[:] = [_word(value) for value in (step.kind, *places, *positions, *sizes, *values)]
    return table, np.concatenate(parts)


def _word(value: int | float) -> int:
    return int(np.float32(value).view(np.int32)) if isinstance(value, float) else value


def _task_rows(
    steps: Sequence[Step], tasks: Sequence[Sequence[Task]], starts: Sequence[int], placed: _Placement
) -> list[tuple[int, ...]]:
    """Return the tasks as chain.cl takes them: step, x, y, first and last of what must be done before, patience."""
    rows: list[tuple[int, ...]] = []
    patience = [_patience(step, len(part)) for step, part in zip(steps, tasks, strict=True)]
    for at, step in enumerate(steps):
        longest = max(patience[max(0, at - 2) : at + 1])  # what is waited for runs together with this step
        before = placed.users_before(step.output, at)
        free = (starts[before[0]], starts[before[1]]) if before else (0, 0)
        source = _maker(steps, at, step.source, placed)
        residual = None if step.residual is None else _maker(steps, at, step.residual, placed)
        for task in tasks[at]:
            waits = [free]
            for maker, shape, span in (
                (source, step.input_shape, reads_of(step, task)),
                (residual, step.output_shape, (task.pixels, task.channels)),
            ):
                if maker is None:
                    waits.append((0, 0))
                elif steps[maker].output_shape != shape:  # reshaped in between
                    waits.append((starts[maker], starts[maker + 1]))
                else:
                    first, last = _overlapping(tasks[maker], *span)
                    waits.append((starts[maker] + first, starts[maker] + last))
            rows.append((at, *task.x, *task.y, *(wait[0] for wait in waits), *(wait[1] for wait in waits), longest))
    return rows


def _maker(steps: Sequence[Step], at: int, memory: Memory, placed: _Placement) -> int | None:
    """Return the last step before `at` that writes a memory."""
    return next((j for j in reversed(range(at)) if placed.same(steps[j].output, memory)), None)


def _overlapping(tasks: Sequence[Task], pixels: Span, channels: Span) -> Span:
    """Return the span of tasks that write any of the pixels and channels."""
    found = [
        at
        for at, task in enumerate(tasks)
        if task.pixels[0] < pixels[1]
        and pixels[0] < task.pixels[1]
        and task.channels[0] < channels[1]
        and channels[0] < task.channels[1]
    ]
    return (found[0], found[-1] + 1) if found else (0, 0)


def _patience(step: Step, tasks: int) -> int:
    """Return how many turns a group waits for a task of a step before it takes its core to be otherwise busy."""
    nanoseconds = max(step.flops / SLOW_FLOPS_PER_NS, step.bytes_moved / SLOW_BYTES_PER_NS) / tasks
    return int(min(max(nanoseconds * TURNS_PER_NS, LEAST_PATIENCE), MOST_PATIENCE))


def _cuts(count: int, parts: int) -> list[Span]:
    edges = [count * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))

# SPDX-License-Identifier: Apache-2.0
"""Chains: packed convolutions and what joins them in one launch of chain.cl, for CPU-type devices.

Every step is cut into tasks, and every core owns the same part of the picture in all of them: its queue. Work-groups,
one per core, take the tasks of their queues in order, help others when they have none, and wait, spinning, until the
tasks that made what they read are done. So the host has one kernel to enqueue, no core sleeps between steps, a step
begins while the one before still runs, and most of what a core reads it has written itself. One group alone would end
too: tasks wait for earlier ones only.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpu_driver.bound import BoundOperand
from gpu_driver.buffers import Lifetime, plan_arenas
from gpu_driver.expanded import joined
from gpu_driver.images import one_image, steps_by_image
from gpu_driver.launch import Clock, Images, Launch, Packed, Scratch, Stage, Zeroed, int32
from gpu_driver.packing import DEPTHWISE_LANES
from gpu_driver.tuning import Tuning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Argument, Command, Kernel
    from nn_runtime.operand import Array
    from nn_runtime.operations.sliding_window import SlidingWindow

Memory: TypeAlias = "BoundOperand | Scratch | Images"
Span: TypeAlias = tuple[int, int]
"""First and behind the last."""

CONVOLVE, DEPTHWISE, FLIP_SIGNS, AVERAGE, DEPTHWISE_VNNI, EXPANDED, SOFTMAX = 0, 1, 2, 3, 4, 5, 6
BY_INTEGERS, BY_FLOATS, CENTRED = 0, 1, 2
ROUND_TWICE, ROUND_TWICE_AT_ONCE, ROUND_ONCE, ROUND_POSITIVE = 0, 1, 2, 3
BUFFERS = 8
"""Buffers of a chain; the first is its own memory for what stays inside."""
ALIGNMENT = 64
"""Bytes, of constants and of tensors in a chain's own memory."""
TILE_PIXELS = 7
CONVOLUTION_BLOCK, DEPTHWISE_BLOCK, LANES = 32, 16, 16
FLOPS_PER_BYTE = 2
"""Moving a byte takes the time of so many operations."""
FEW_ROWS = 4
"""Per core: with fewer, weights are most of what is read, so every core gets channels of its own."""
UNTUNED = Tuning()
LINE_WORDS = 32
TURNS_PER_NS = 0.1
"""Of a waiting loop."""
LEAST_PATIENCE, MOST_PATIENCE = 5_000, 1 << 30
"""Turns that a group waits for a task before it leaves the rest to the others: between them what a slow core needs."""
SLOW_FLOPS_PER_NS, SLOW_BYTES_PER_NS = 25.0, 2.5

PLACES = ("kind", "src", "src_offset", "dst", "dst_offset", "residual", "residual_offset", "before")
CONSTANTS = ("weights", "bias", "multipliers", "shifts", "roundings", "scales", "offsets", "modes")
GEOMETRY = (
    *("batches", "input_height", "input_width", "input_depth", "output_height", "output_width", "output_depth"),
    *("filter_height", "filter_width", "stride_height", "stride_width", "dilation_height", "dilation_width"),
    *("padding_top", "padding_left"),
)
VALUES = (
    *("chunk", "weight_offset", "zero_in", "zero_out", "rounding_mode", "low", "high"),
    *("has_residual", "zero_residual", "left_shift"),
    *("multiplier_product", "exponent_product", "multiplier_residual", "exponent_residual"),
    *("multiplier_sum", "exponent_sum", "rounding_sum"),
    *("adds_by_floats", "factor_product", "factor_residual", "offset_sum", "low_sum", "high_sum"),
)
STEP_FIELDS = (*PLACES, *CONSTANTS, *GEOMETRY, *VALUES)
"""Fields of `Step` in common/chain_step.h, four bytes each."""


@dataclass(frozen=True, eq=False)
class Step:
    """One operation of a chain.

    constants: weights, bias, and for quantised ones multipliers, shifts, roundings. values: by name of VALUES those
    that are not 0; float ones for float and half. before: the convolution that an EXPANDED step does, too: its source
    is the step's, the rest of the step is the depthwise one's.
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
    before: Step | None = None

    @property
    def by_channel(self) -> bool:
        """Whether every output channel reads its input channel only."""
        return self.kind in (DEPTHWISE, AVERAGE, DEPTHWISE_VNNI)

    @property
    def is_depthwise(self) -> bool:
        """Whether depthwise.h does it."""
        return self.kind == DEPTHWISE

    @property
    def is_float_product(self) -> bool:
        """Whether convolve.h does it, on float32."""
        return self.kind == CONVOLVE and ("T", "float") in self.kernel.defines

    @property
    def memories(self) -> tuple[Memory, ...]:
        """What it reads and writes."""
        return (self.source, self.output) if self.residual is None else (self.source, self.output, self.residual)

    @property
    def input_shape(self) -> tuple[int, int]:
        """Pixels and channels of the input."""
        g = self.geometry if self.before is None else self.before.geometry
        return g.batches * g.input_height * g.input_width, g.input_depth

    @property
    def output_shape(self) -> tuple[int, int]:
        """Pixels and channels of the output."""
        g = self.geometry
        return g.batches * g.output_height * g.output_width, g.output_depth

    def after(self, first: Step) -> Step:
        """Return one step that does this and what makes its input, which is nowhere else then."""
        return replace(
            self,
            kind=EXPANDED,
            source=first.source,
            flops=first.flops + self.flops,
            bytes_moved=first.bytes_moved + self.bytes_moved - 2 * first.output.size_bytes,
            operations=(*first.operations, *self.operations),
            before=replace(first, output=first.source),
        )


@dataclass(frozen=True)
class Task:
    """A part of a step: tiles or rows `x` and blocks of channels `y` as chain.cl counts them, and what it writes.

    queue: whose it is.
    """

    queue: int
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


def tasks_of(step: Step, cores: int, tuning: Tuning = UNTUNED) -> list[Task]:
    """Cut a step into tasks, core by core: the same part of the picture in every step."""
    pixels, depth = step.output_shape
    if step.by_channel:
        row, block = step.geometry.output_width, _channels_of_block(step)
    elif step.before is not None:
        row, block = step.geometry.output_width, CONVOLUTION_BLOCK
    else:
        row, block = TILE_PIXELS, CONVOLUTION_BLOCK if step.kind == CONVOLVE else depth
    rows, blocks = -(-pixels // row), -(-depth // block)
    cost = step.flops + FLOPS_PER_BYTE * step.bytes_moved
    parts = min(cores, -(-cost // tuning.least_task_flops))
    bands = tuning.bands_of_large_steps if step.flops > tuning.large_step_flops * cores else tuning.bands
    bands = min(bands, -(-cost // (tuning.least_task_flops * parts)))
    if step.before is not None:
        rectangles = _columns(rows, blocks, parts, bands)
    elif rows < FEW_ROWS * parts and step.is_float_product:  # others gather a row for all blocks
        spans = enumerate(_cuts(rows * blocks, min(parts, rows * blocks)))
        rectangles = [(part, x, y) for part, span in spans for y, x in _rectangles(span, rows, bands)]
    else:
        spans = enumerate(_parts(rows, blocks, parts, tuning.even_rows))
        rectangles = [(part, x, y) for part, span in spans for x, y in _rectangles(span, blocks, bands)]
    return [
        Task(part * cores // parts, x, y, (x[0] * row, min(x[1] * row, pixels)), (y[0] * block, y[1] * block))
        for part, x, y in rectangles
    ]


def reads_of(step: Step, task: Task) -> tuple[Span, Span]:
    """Return the input pixels (over all images, row-major) and channels that a task reads."""
    if step.before is not None:
        between, _ = reads_of(replace(step, before=None), task)
        return reads_of(step.before, replace(task, pixels=between))
    g = step.geometry
    channels = (0, g.input_depth)
    if step.by_channel:  # its last block overlaps the one before
        channels = (max(0, task.channels[0] - _channels_of_block(step)), task.channels[1])
    pointwise = (g.filter_height, g.filter_width, g.stride_height, g.stride_width) == (1, 1, 1, 1)
    if pointwise and step.input_shape[0] == step.output_shape[0]:
        return task.pixels, channels

    def row(pixel: int, tap: int) -> int:
        b, oy = divmod(pixel // g.output_width, g.output_height)
        y = oy * g.stride_height - g.padding_top + tap * g.dilation_height
        return b * g.input_height + min(max(y, 0), g.input_height - 1)

    first, last = row(task.pixels[0], 0), row(task.pixels[1] - 1, g.filter_height - 1)
    return (first * g.input_width, (last + 1) * g.input_width), channels


def _channels_of_block(step: Step) -> int:
    return DEPTHWISE_LANES if step.kind == DEPTHWISE_VNNI else DEPTHWISE_BLOCK


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
        self._steps_of = [
            tuple(replace(step, operations=command.operations) for step in command.steps)
            if isinstance(command, Launch)
            else ()
            for command in commands
        ]
        self._users: dict[int, set[int]] = {}
        for at, command in enumerate(commands):
            arguments = command.arguments if isinstance(command, Launch) else (command.source, command.destination)
            for memory in arguments:
                if isinstance(memory, BoundOperand | Scratch):
                    self._users.setdefault(self._key(memory), set()).add(at)

    def fits(self, run: Sequence[int]) -> bool:
        """Whether the commands of a run can be one launch, if all but the last can."""
        first, last = self._steps(run[:1]), self._steps(run[-1:])
        if len(run) > self._device.tuning.chain_steps:
            return False
        return bool(first and last) and first[0].kernel == last[0].kernel and len(self._outer(run)) < BUFFERS

    def joined(self, run: Sequence[int]) -> list[Command]:
        """Return one command that does what those of a run do, or those where it would need too large a buffer."""
        steps = self._steps(run)
        if len(run) > 1:
            keys = {memory: self._key(memory) for step in steps for memory in step.memories}
            launches = self._launches(steps, keys, self._inner(run))
            sizes = (one.size_bytes for launch in launches for one in launch.arguments if isinstance(one, Scratch))
            if max(sizes, default=0) <= self._device.max_alloc_bytes:
                return [*launches]
        return [self._commands[at] for at in run]

    def _launches(self, steps: tuple[Step, ...], keys: Mapping[Memory, int], inner: frozenset[int]) -> list[Launch]:
        """Return one launch, or one for the steps that are done image by image and one for the others."""
        n = steps_by_image(steps, keys, inner, self._device)
        if n:
            before = {keys[one] for step in steps[:n] for one in step.memories}
            after = {keys[one] for step in steps[n:] for one in step.memories}
            if max(len(before - (inner - after)), len(after - (inner - before))) < BUFFERS:
                of_image = one_image(steps[:n])
                wholes: dict[Memory, int] = {
                    one: keys[one.whole] for step in of_image for one in step.memories if isinstance(one, Images)
                }
                first = [self._launch(of_image, wholes, inner - after)]
                return [*first, self._launch(steps[n:], keys, inner - before)] if n < len(steps) else first
        return [self._launch(steps, keys, inner)]

    def _launch(self, steps: tuple[Step, ...], keys: Mapping[Memory, int], inner: frozenset[int]) -> Launch:
        return _launch(joined(steps, keys, inner, self._device.compute_units), keys, inner, self._device)

    def _steps(self, run: Sequence[int]) -> tuple[Step, ...]:
        return tuple(step for at in run for step in self._steps_of[at])

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
    tasks = [tasks_of(step, device.compute_units, device.tuning) for step in steps]
    queues = 1 + max(task.queue for part in tasks for task in part)
    table, constants = _tables(steps, placed)
    schedule = _schedule(steps, tasks, queues, placed, table[:, STEP_FIELDS.index("weights")])
    stages = [Stage(step.operations, at, at + 1, step.flops, step.bytes_moved) for at, step in enumerate(steps)]
    arguments: tuple[Argument, ...] = (
        *(int32(0), int32(len(steps)), int32(len(steps)), int32(queues)),
        *(Packed(table), Packed(schedule.rows), Packed(schedule.starts), Packed(schedule.waits), Packed(constants)),
        Zeroed(4 * LINE_WORDS * (1 + queues + len(schedule.rows))),
        *placed.buffers,
    )
    return Launch(
        _clocked(steps[0].kernel, device),
        arguments,
        (queues,),
        (1,),
        sum(step.flops for step in steps),
        sum(step.bytes_moved for step in steps),
        tuple(operation for step in steps for operation in step.operations),
        steps,
        tuple(stages) if len(stages) > 1 else (),
        Clock(LINE_WORDS, 1 + queues, tuple(schedule.rows[:, 0].tolist())) if device.cycle_counter else None,
    )


def _clocked(kernel: Kernel, device: DeviceProfile) -> Kernel:
    """Return the kernel that leaves the times of its tasks, on devices that can."""
    return replace(kernel, defines=(*kernel.defines, ("CLOCK", 1))) if device.cycle_counter else kernel


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
    every = [*steps, *(step.before for step in steps if step.before is not None)]
    table = np.zeros((len(every), len(STEP_FIELDS)), np.int32)
    parts: list[Array] = []
    end = 0
    before = len(steps)
    for row, step in zip(table, every, strict=True):
        positions = []
        for data in step.constants:
            positions.append(end // ALIGNMENT)
            flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            parts += [flat, np.zeros(-flat.size % ALIGNMENT, np.uint8)]
            end += -(-flat.size // ALIGNMENT) * ALIGNMENT
        positions += positions[-1:] * (len(CONSTANTS) - len(positions))  # never used, but read
        residual = step.source if step.residual is None else step.residual
        places = *placed.place(step.source), *placed.place(step.output), *placed.place(residual), before
        before += step.before is not None
        sizes = (getattr(step.geometry, name) for name in GEOMETRY)
        values = (step.values.get(name, 0) for name in VALUES)
        row[:] = [_word(value) for value in (step.kind, *places, *positions, *sizes, *values)]
    return table, np.concatenate(parts)


def _word(value: int | float) -> int:
    return int(np.float32(value).view(np.int32)) if isinstance(value, float) else value


@dataclass(frozen=True)
class Schedule:
    """Tasks as chain.cl takes them, queue by queue.

    rows: step, x, y, weights to fetch ahead and how many lines of ALIGNMENT bytes, first and last place in `waits`,
    patience. starts [queues, steps + 1]: the first task of each
    step. waits: tasks.
    """

    rows: Array
    starts: Array
    waits: Array


def _schedule(
    steps: Sequence[Step], tasks: Sequence[Sequence[Task]], queues: int, placed: _Placement, weights: Array
) -> Schedule:
    """Put tasks into queues, with what each waits for; in the order of the steps each comes after that.

    weights: where those of each step begin in the constants, in units of ALIGNMENT.
    """
    flat = [(at, task) for at, part in enumerate(tasks) for task in part]
    order = sorted(range(len(flat)), key=lambda i: (flat[i][1].queue, i))
    places = np.argsort(order)
    counts = np.zeros((queues, len(steps) + 1), np.int32)
    for at, task in flat:
        counts[task.queue, at + 1] += 1
    totals = counts.sum(axis=1)
    starts = np.cumsum(counts, axis=1, dtype=np.int32) + (np.cumsum(totals) - totals)[:, np.newaxis]
    waits = _waits(steps, tasks, placed)
    patience = [_patience(step, len(part)) for step, part in zip(steps, tasks, strict=True)]
    ahead = _ahead(steps, [flat[i] for i in order], weights)
    rows: list[tuple[int, ...]] = []
    listed: list[int] = []
    for i, next_weights in zip(order, ahead, strict=True):
        at, task = flat[i]
        first = len(listed)
        listed += sorted(places[waits[i]].tolist())
        longest = max(patience[max(0, at - 2) : at + 1])  # what is waited for runs together with this step
        rows.append((at, *task.x, *task.y, *next_weights, first, len(listed), longest))
    return Schedule(np.array(rows, np.int32), starts.astype(np.int32), np.array(listed or [0], np.int32))


def _ahead(steps: Sequence[Step], tasks: Sequence[tuple[int, Task]], weights: Array) -> list[tuple[int, int]]:
    """Return for each task the first weights of the next product in its queue: where they begin, and how many lines."""
    result: list[tuple[int, int]] = []
    queue, following = -1, (0, 0)
    for at, task in reversed(tasks):
        if task.queue != queue:
            queue, following = task.queue, (0, 0)
        result.append(following)
        step = steps[at]
        if step.is_float_product:
            g = step.geometry
            lines = CONVOLUTION_BLOCK // LANES * g.filter_height * g.filter_width * g.input_depth
            following = int(weights[at]) + task.y[0] * lines, lines
    return result[::-1]


def _waits(steps: Sequence[Step], tasks: Sequence[Sequence[Task]], placed: _Placement) -> list[list[int]]:
    """Return for every task, in the order of the steps, those it waits for: none that another of them waits for."""
    numbers = np.cumsum([0, *(len(part) for part in tasks)]).tolist()
    reached: list[int] = []  # as bits: what is done when a task is
    waits: list[list[int]] = []
    for at, step in enumerate(steps):
        before = placed.users_before(step.output, at)
        free = _bits(numbers[before[0]], numbers[before[1]]) if before else 0
        source = _maker(steps, at, step.source, placed)
        residual = None if step.residual is None else _maker(steps, at, step.residual, placed)
        for task in tasks[at]:
            needed = free
            for maker, shape, span in (
                (source, step.input_shape, reads_of(step, task)),
                (residual, step.output_shape, (task.pixels, task.channels)),
            ):
                if maker is None:
                    continue
                if steps[maker].output_shape != shape:  # reshaped in between
                    needed |= _bits(numbers[maker], numbers[maker + 1])
                else:
                    for other in _overlapping(tasks[maker], *span):
                        needed |= 1 << (numbers[maker] + other)
            own = 1 << len(waits)
            waits.append([])
            while needed:
                last = needed.bit_length() - 1
                waits[-1].append(last)
                needed &= ~reached[last]
                own |= reached[last]
            reached.append(own)
    return waits


def _bits(first: int, last: int) -> int:
    return (1 << last) - (1 << first)


def _maker(steps: Sequence[Step], at: int, memory: Memory, placed: _Placement) -> int | None:
    """Return the last step before `at` that writes a memory."""
    return next((j for j in reversed(range(at)) if placed.same(steps[j].output, memory)), None)


def _overlapping(tasks: Sequence[Task], pixels: Span, channels: Span) -> list[int]:
    """Return the tasks that write any of the pixels and channels."""
    return [
        at
        for at, task in enumerate(tasks)
        if task.pixels[0] < pixels[1]
        and pixels[0] < task.pixels[1]
        and task.channels[0] < channels[1]
        and channels[0] < task.channels[1]
    ]


def _patience(step: Step, tasks: int) -> int:
    """Return how many turns a group waits for a task of a step before it takes its core to be otherwise busy."""
    nanoseconds = max(step.flops / SLOW_FLOPS_PER_NS, step.bytes_moved / SLOW_BYTES_PER_NS) / tasks
    return int(min(max(nanoseconds * TURNS_PER_NS, LEAST_PATIENCE), MOST_PATIENCE))


def _parts(rows: int, blocks: int, parts: int, even_rows: int) -> list[Span]:
    """Cut rows x blocks, counted row by row, into equal spans: whole rows where those are even enough."""
    if rows >= even_rows * parts:
        return [(first * blocks, last * blocks) for first, last in _cuts(rows, parts)]
    return _cuts(rows * blocks, min(parts, rows * blocks))


def _rectangles(span: Span, blocks: int, bands: int) -> list[tuple[Span, Span]]:
    """Cut a span of rows x blocks into rectangles (rows, blocks): parts of rows at its ends, bands of whole rows."""
    (top, first), (bottom, last) = divmod(span[0], blocks), divmod(span[1], blocks)
    if top == bottom:
        return [((top, top + 1), (first, last))]
    head = [((top, top + 1), (first, blocks))] if first else []
    tail = [((bottom, bottom + 1), (0, last))] if last else []
    whole = top + len(head), bottom
    middle = [((whole[0] + a, whole[0] + b), (0, blocks)) for a, b in _cuts(bottom - whole[0], bands) if a < b]
    return [*head, *middle, *tail]


def _columns(rows: int, blocks: int, parts: int, bands: int) -> list[tuple[int, Span, Span]]:
    """Cut rows x blocks into parts of rows, and those by blocks if they can be: neighbouring rows share work."""
    across = min(bands, blocks)
    return [
        (part, (top + first, top + last), column)
        for part, (top, bottom) in enumerate(_cuts(rows, min(parts, rows)))
        for first, last in _cuts(bottom - top, min(-(-bands // across), bottom - top))
        for column in _cuts(blocks, across)
    ]


def _cuts(count: int, parts: int) -> list[Span]:
    edges = [count * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))

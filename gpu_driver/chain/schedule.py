# SPDX-License-Identifier: Apache-2.0
"""Tasks in the queues of their cores, and what each waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpu_driver.chain.memory import ALIGNMENT
from gpu_driver.chain.tasks import CONVOLUTION_BLOCK, reads_of, reads_of_residual, reads_of_third
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_driver.chain.memory import Placement
    from gpu_driver.chain.step import Memory, Step
    from gpu_driver.chain.tasks import Span, Task
    from nn_runtime.operand import Array

TURNS_PER_NS = 0.1
"""Of a waiting loop."""
LEAST_PATIENCE, MOST_PATIENCE = 50_000, 1 << 30
"""Turns that a group waits for a task before it leaves the rest to the others: between them what a slow core needs."""
SLOW_FLOPS_PER_NS, SLOW_BYTES_PER_NS = 25.0, 2.5


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


def schedule(
    steps: Sequence[Step], tasks: Sequence[Sequence[Task]], queues: int, placed: Placement, weights: Array
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
            depth = g.filter_height * g.filter_width * g.input_depth
            lines = CONVOLUTION_BLOCK * depth * step.constants[0].itemsize // ALIGNMENT
            following = int(weights[at]) + task.y[0] * lines, lines
    return result[::-1]


def _waits(steps: Sequence[Step], tasks: Sequence[Sequence[Task]], placed: Placement) -> list[list[int]]:
    """Return for every task, in the order of the steps, those it waits for: none that another of them waits for."""
    numbers = np.cumsum([0, *(len(part) for part in tasks)]).tolist()
    accesses = [_accesses(step, part) for step, part in zip(steps, tasks, strict=True)]
    users = _Users(steps, accesses, numbers, placed)
    reached: list[int] = []  # as bits: what is done when a task is
    waits: list[list[int]] = []
    for at, step in enumerate(steps):
        free = 0
        if step.writes_part:
            for maker in _makers(steps, at, step.output, placed):
                if not steps[maker].writes_part:
                    free |= _bits(numbers[maker], numbers[maker + 1])
        makers = [_makers(steps, at, read.memory, placed) for read in accesses[at][0][1:]]
        for written, *reads in accesses[at]:
            needed = free | users.before(at, written)
            for read, found in zip(reads, makers, strict=True):
                for maker in found:
                    made = _reshaped(*read.span, read.shape, steps[maker].output_shape)
                    if not steps[maker].is_read_by_rows or made is None:
                        needed |= _bits(numbers[maker], numbers[maker + 1])
                    else:
                        needed |= _overlapping(tasks[maker], *made) << numbers[maker]
            fewest = _without_implied(needed, reached)
            own = 1 << len(waits)
            for other in fewest:
                own |= reached[other]
            waits.append(fewest)
            reached.append(own)
    return waits


class _Access(NamedTuple):
    """What a task reads or writes of a memory: pixels and channels, where it has so many, and between which bytes."""

    memory: Memory
    shape: tuple[int, int]
    span: tuple[Span, Span]
    bytes: Span


def _accesses(step: Step, tasks: Sequence[Task]) -> list[list[_Access]]:
    """Return of each task of a step what it writes, then what it reads."""
    roles = [(step.output, step.output_shape, _written), (step.source, step.input_shape, reads_of)]
    if step.residual is not None:
        roles.append((step.residual, step.residual_shape, reads_of_residual))
    if step.third is not None:
        roles.append((step.third, step.third_shape, reads_of_third))
    found: list[list[_Access]] = [[] for _ in tasks]
    for memory, shape, span_of in roles:
        size, row = memory.size_bytes, shape[1] * step.element_bytes
        has_shape = row * shape[0] == size and (span_of is not _written or step.writes_rows_in_order)
        for task, accesses in zip(tasks, found, strict=True):
            (first, last), channels = span_of(step, task)
            places = (first * row, last * row) if has_shape else (0, size)
            accesses.append(_Access(memory, shape, ((first, last), channels), places))
    return found


def _written(_step: Step, task: Task) -> tuple[Span, Span]:
    return task.pixels, task.channels


class _Users:
    """Who used the memory where a step writes, for what nobody needs any more."""

    def __init__(
        self, steps: Sequence[Step], accesses: Sequence[Sequence[Sequence[_Access]]], numbers: Sequence[int],
        placed: Placement,
    ) -> None:  # fmt: skip
        self._steps, self._accesses, self._numbers, self._placed = steps, accesses, numbers, placed
        self._of_step: tuple[int, list[tuple[int, int, int]]] = (-1, [])

    def before(self, at: int, written: _Access) -> int:
        """Return as bits the tasks that used any of the bytes which a task of step `at` may write."""
        if self._of_step[0] != at:
            self._of_step = at, list(self._users(at))
        first, last = written.bytes
        return sum({1 << number for number, begin, end in self._of_step[1] if begin < last and first < end})

    def _users(self, at: int) -> Iterator[tuple[int, int, int]]:
        """Return tasks, and between which bytes of the memory that the step writes each used others."""
        for key, shift, users in self._placed.overwritten(self._steps[at].output, at):
            for user in users:
                for number, accesses in enumerate(self._accesses[user], self._numbers[user]):
                    for access in accesses:
                        if self._placed.has_key(access.memory, key):
                            yield number, access.bytes[0] + shift, access.bytes[1] + shift


def _without_implied(needed: int, reached: Sequence[int]) -> list[int]:
    """Return those of the tasks in `needed` that no later one of them waits for, the last one first."""
    fewest: list[int] = []
    while needed:
        last = needed.bit_length() - 1
        fewest.append(last)
        needed &= ~reached[last]
    return fewest


def _bits(first: int, last: int) -> int:
    return (1 << last) - (1 << first)


def _makers(steps: Sequence[Step], at: int, memory: Memory, placed: Placement) -> list[int]:
    """Return the last step before `at` that writes all of a memory, and those after it that write parts."""
    makers: list[int] = []
    for j in reversed(range(at)):
        if placed.same(steps[j].output, memory):
            makers.append(j)
            if not steps[j].writes_part:
                break
    return makers


def _reshaped(pixels: Span, channels: Span, shape: tuple[int, int], made: tuple[int, int]) -> tuple[Span, Span] | None:
    """Return the pixels and channels, where memory has the shape as which it was made, that hold some of another shape.

    None where the shapes have not as many elements.
    """
    if shape == made:
        return pixels, channels
    (count, depth), (others, width) = shape, made
    if count * depth != others * width:
        return None
    return (pixels[0] * depth // width, -(-pixels[1] * depth // width)), (0, width)


def _overlapping(tasks: Sequence[Task], pixels: Span, channels: Span) -> int:
    """Return as bits the tasks that write any of the pixels and channels."""
    return sum(
        1 << at
        for at, task in enumerate(tasks)
        if task.pixels[0] < pixels[1]
        and pixels[0] < task.pixels[1]
        and task.channels[0] < channels[1]
        and channels[0] < task.channels[1]
    )


def _patience(step: Step, tasks: int) -> int:
    """Return how many turns a group waits for a task of a step before it takes its core to be otherwise busy."""
    nanoseconds = max(step.flops / SLOW_FLOPS_PER_NS, step.bytes_moved / SLOW_BYTES_PER_NS) / tasks
    return int(min(max(nanoseconds * TURNS_PER_NS, LEAST_PATIENCE), MOST_PATIENCE))

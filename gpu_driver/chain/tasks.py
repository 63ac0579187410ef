# SPDX-License-Identifier: Apache-2.0
"""Steps cut into tasks, core by core."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from gpu_driver.chain.kinds import Kind
from gpu_driver.convolution.packing import depthwise_block
from gpu_driver.convolution.winograd import pixels_of, tile_count
from gpu_driver.tuning_values import Tuning
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.chain.step import Reading, Step

Span: TypeAlias = tuple[int, int]
"""First and behind the last."""

CONVOLUTION_BLOCK, DEPTHWISE_BLOCK, REDUCE_BLOCK = 32, 16, 16
FLOPS_PER_BYTE = 2
"""Moving a byte takes the time of so many operations."""
LARGE_STEP_FLOPS = 8_000_000
"""Of a core's part of a step."""
EVEN_ROWS = 16
"""Per core: so many are even enough, fewer are cut by channels too."""
HEAVY_WEIGHTS_BYTES = 500_000
"""More is better read by one core only, and once: it does not stay in a core's own caches beside the rest."""
ROW_BY_ROW = frozenset(
    (
        *(Kind.FLIP_SIGNS, Kind.QUANTIZE, Kind.DEQUANTIZE, Kind.SOFTMAX, Kind.ELEMENTWISE, Kind.REDUCE),
        *(Kind.COPY, Kind.FILL, Kind.BILINEAR, Kind.NEAREST, Kind.RANGES, Kind.BYTES_OF_ROWS, Kind.GATHER),
    )
)
"""Steps that can be cut after any row; by themselves they are cut after rows that are tiles of others."""
UNTUNED = Tuning()


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


def tasks_of(step: Step, cores: int, tuning: Tuning = UNTUNED, made: Sequence[Task] = ()) -> list[Task]:
    """Cut a step into tasks, core by core: the same part of the picture in every step.

    made: the tasks of the step that makes what it reads. What goes row by row is cut like these, however small it is:
    a core that does all of it would wait for the others, and they for it.
    """
    pixels_of_row, channels_of_block = unit_of(step)
    grain = step.tile_pixels if step.kind in ROW_BY_ROW else 1
    count = _count(step)
    rows, blocks = -(-count // (pixels_of_row * grain)), -(-step.output_shape[1] // channels_of_block)
    cost = step.flops + FLOPS_PER_BYTE * step.bytes_moved
    parts = min(cores, -(-cost // tuning.least_task_flops))
    bands = tuning.bands_of_large_steps if step.flops > LARGE_STEP_FLOPS * cores else tuning.bands
    bands = min(bands, -(-cost // (tuning.least_task_flops * parts)))
    followed = _rows_of_queues(made, step)
    if len(followed) >= parts:
        return [
            Task(queue, x, (0, blocks), x, (0, blocks * channels_of_block))
            for queue, (first, last) in followed.items()
            for x in ((first + a, first + b) for a, b in _cuts(last - first, min(bands, last - first)))
        ]
    few_pixels = count < _few_pixels(step, tuning) * parts or _has_heavy_weights(step, count)
    pieces = _cut(step, rows, blocks, parts, bands, few_pixels=few_pixels)
    return [_task(step, part * cores // parts, (x[0] * grain, x[1] * grain), y) for part, x, y in pieces]


def _task(step: Step, queue: int, x: Span, y: Span) -> Task:
    """Return the task of a part of a step, in what tasks count; `x` may end behind the step."""
    (row, block), count = unit_of(step), _count(step)
    first, last = x[0], min(x[1], -(-count // row))
    pixels = _pixels(step, first * row, min(last * row, count))
    return Task(queue, (first, last), y, pixels, (y[0] * block, y[1] * block))


def _cut(
    step: Step, rows: int, blocks: int, parts: int, bands: int, *, few_pixels: bool
) -> Sequence[tuple[int, Span, Span]]:
    """Cut rows x blocks of channels among `parts`, each into some `bands`; return part, rows and blocks of each piece.

    few_pixels: whether weights are most of what is read, so that parts have channels of their own.
    """
    if step.before is not None:
        return _columns(rows, blocks, parts, bands)
    if step.epilogue is not None and _blocks_overlap(step):
        return [(part, x, (0, blocks)) for part, x, _ in _columns(rows, 1, parts, bands)]
    if few_pixels:
        bands = 1 if step.is_winograd else bands  # every task transforms all of its tiles
        spans = _cuts(rows * blocks, min(parts, rows * blocks))
        return [(part, x, y) for part, span in enumerate(spans) for y, x in _rectangles(span, rows, bands)]
    spans = _parts(rows, blocks, parts)
    return [(part, x, y) for part, span in enumerate(spans) for x, y in _rectangles(span, blocks, bands)]


def _rows_of_queues(made: Sequence[Task], step: Step) -> dict[int, Span]:
    """Return the rows that each queue has made, if they are all that a step going row by row writes; else nothing."""
    if step.kind not in ROW_BY_ROW or len({task.channels for task in made}) != 1:
        return {}
    spans: dict[int, Span] = {}
    for task in sorted(made, key=lambda task: task.pixels):
        first, last = spans.get(task.queue, (task.pixels[0],) * 2)
        if task.pixels[0] != last:
            return {}
        spans[task.queue] = first, task.pixels[1]
    return spans if sum(last - first for first, last in spans.values()) == step.output_shape[0] else {}


def unit_of(step: Step) -> tuple[int, int]:
    """Return pixels and channels of what tasks count."""
    if step.by_channel:
        return step.geometry.output_width, _channels_of_block(step)
    if step.before is not None:
        return step.geometry.output_width, CONVOLUTION_BLOCK
    if step.kind == Kind.TURN:
        return 1, step.output_shape[1]
    if step.kind == Kind.TO_BYTES:
        return step.geometry.output_width, step.output_shape[1]
    if step.kind == Kind.MULTIPLY_BYTES:
        g = step.geometry
        return g.output_width if g.batches * g.output_height > 1 else step.tile_pixels, CONVOLUTION_BLOCK
    if step.kind == Kind.MULTIPLY_FEW:
        return step.geometry.output_width, step.output_shape[1] if step.values.get("has_softmax") else CONVOLUTION_BLOCK
    pixels = 1 if step.kind in ROW_BY_ROW else step.tile_pixels
    if step.kind == Kind.REDUCE:
        return pixels, REDUCE_BLOCK
    has_blocks = step.kind == Kind.CONVOLVE or step.is_winograd
    return pixels, CONVOLUTION_BLOCK if has_blocks else step.output_shape[1]


def unit_of_epilogue(step: Step) -> tuple[int, int]:
    """Return pixels and channels of what the epilogue of a step is told to do: MULTIPLY counts its own rows for it."""
    return (1, step.output_shape[1]) if step.kind == Kind.MULTIPLY else unit_of(step)


def _blocks_overlap(step: Step) -> bool:
    """Whether the last block of channels begins in the one before, so that tasks of each would write the same."""
    depth, (_, block) = step.output_shape[1], unit_of(step)
    return step.by_channel and depth > block and depth % block != 0


def _count(step: Step) -> int:
    """Return what is cut into rows of tile_pixels."""
    if step.kind == Kind.MULTIPLY:
        return step.geometry.batches * _tiles(step) * step.tile_pixels
    return tile_count(step.geometry) if step.is_winograd else step.output_shape[0]


def reads_of(step: Step, task: Task) -> tuple[Span, Span]:
    """Return the input pixels (over all images, row-major) and channels that a task reads."""
    if step.reads is not None:
        return _rows_read(step, step.reads, task)
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


def reads_of_residual(step: Step, task: Task) -> tuple[Span, Span]:
    """Return the pixels and channels of its residual that a task reads."""
    return _rows_or_own(step, step.reads_residual, task)


def reads_of_third(step: Step, task: Task) -> tuple[Span, Span]:
    """Return the pixels and channels of its third memory that a task reads."""
    return _rows_or_own(step, step.reads_third, task)


def _rows_or_own(step: Step, reads: Reading | None, task: Task) -> tuple[Span, Span]:
    return (task.pixels, task.channels) if reads is None else _rows_read(step, reads, task)


def _rows_read(step: Step, reads: Reading, task: Task) -> tuple[Span, Span]:
    """Return the rows of all groups that a task has pixels of."""
    pixels, rows = step.output_shape[0] // reads.groups, reads.rows // reads.groups
    first, last = task.pixels[0] // pixels, -(-task.pixels[1] // pixels)
    return (first * rows, last * rows), (0, reads.depth)


def _pixels(step: Step, first: int, last: int) -> Span:
    if step.kind == Kind.MULTIPLY:
        return tuple(_first_row(step, tile // step.tile_pixels) for tile in (first, last))  # type: ignore[return-value]
    return pixels_of(step.geometry, first, last) if step.is_winograd else (first, last)


def _tiles(step: Step) -> int:
    """Return how many tiles of rows a product of matrices has, each matrix cut apart."""
    return -(-step.geometry.output_width // step.tile_pixels)


def _first_row(step: Step, tile: int) -> int:
    matrix, at = divmod(tile, _tiles(step))
    return matrix * step.geometry.output_width + at * step.tile_pixels


def _few_pixels(step: Step, tuning: Tuning) -> int:
    """Return how many pixels a core are few: with fewer, weights are most of what is read.

    0, so that none are few, where each task would gather its pixels for itself.
    """
    if not (step.reads_in_place or step.is_winograd):
        return 0
    of_bytes = ("QUANTIZED", 1) in step.kernel.defines or step.kind == Kind.MULTIPLY_BYTES
    return tuning.few_pixels // 2 if of_bytes else tuning.few_pixels


def _has_heavy_weights(step: Step, pixels: int) -> bool:
    """Whether a product has many weights, more of them than of inputs: every core gets channels of its own."""
    is_product = step.kind in (Kind.CONVOLVE, Kind.MULTIPLY_BYTES) and step.reads_in_place
    return is_product and step.constants[0].nbytes > HEAVY_WEIGHTS_BYTES and step.output_shape[1] > pixels


def _channels_of_block(step: Step) -> int:
    return depthwise_block(step.dot4) if step.kind == Kind.DEPTHWISE_BYTES else DEPTHWISE_BLOCK


def _parts(rows: int, blocks: int, parts: int) -> list[Span]:
    """Cut rows x blocks, counted row by row, into equal spans: whole rows where those are even enough."""
    if rows >= EVEN_ROWS * parts:
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

# SPDX-License-Identifier: Apache-2.0
"""Convolutions joined with the depthwise one after them: what lies between stays in a core's caches (expanded.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.chain.memory import Memories
    from gpu_driver.chain.step import Step

WINDOW_ELEMENTS = 16384
"""How much of its input a tile of the convolution may read; there is room for a copy of so much (staging.py)."""
MOST_PIXELS = 16
"""Of a tile (chain/tiles.py has fewer)."""
LEAST_COLUMNS = 7
LEAST_ROWS = 14
"""Per core, of what lies between: neighbouring cores both compute one or two rows."""


def joined(steps: Sequence[Step], memories: Memories, cores: int) -> tuple[Step, ...]:
    """Put convolutions and the depthwise ones after them together where nobody else reads what lies between."""
    used = memories.used_by(steps)
    result: list[Step] = []
    for step in steps:
        last = result[-1] if result else None
        if (
            last is not None
            and memories.is_inner(last.output)
            and used[memories.key(last.output)] == 2
            and _fits(last, step, cores)
        ):
            result[-1] = step.after(last)
        else:
            result.append(step)
    return tuple(result)


def _fits(first: Step, second: Step, cores: int) -> bool:
    """Whether expanded.h applies to two steps, and cores have enough rows each."""
    g = second.geometry
    return (
        second.is_depthwise
        and first.is_float_product
        and first.residual is None
        and first.output is second.source
        and first.output_shape == second.input_shape
        and (g.filter_height, g.filter_width, g.dilation_height, g.dilation_width) == (3, 3, 1, 1)
        and max(g.stride_height, g.stride_width) <= 2
        and g.input_depth % 16 == 0
        and g.output_width >= LEAST_COLUMNS
        and g.batches * g.input_height >= LEAST_ROWS * cores
        and _window_elements(first) <= WINDOW_ELEMENTS
    )


def _window_elements(step: Step) -> int:
    """Return what a tile of neighbours reads, row by row as whole vectors."""
    g = step.geometry
    columns = (MOST_PIXELS - 1) * g.stride_width + (g.filter_width - 1) * g.dilation_width + 1
    return g.filter_height * -(-columns * g.input_depth // 16) * 16

# SPDX-License-Identifier: Apache-2.0
"""Chains over several images: one image after the other, so that what a step writes is in the caches for the next.

Steps over all images at once would move every tensor to memory and back. The launch of one image is enqueued for each,
on its part of the tensors that others see too; what stays inside needs memory for one image only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_driver.bound import BoundOperand
from gpu_driver.kernel import Images, Scratch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_driver.chain.memory import Memories
    from gpu_driver.chain.step import Memory, Step
    from gpu_driver.device_profile import DeviceProfile

LEAST_FLOPS = 20_000_000
"""Of an image: less is not worth launches of its own."""


def steps_by_image(steps: Sequence[Step], memories: Memories, device: DeviceProfile) -> int:
    """Return how many steps, from the first, are best done image by image; 0 for none.

    Last steps of one pixel an image are left together: all share their weights.
    """
    count = steps[0].geometry.batches
    end = next((at for at, step in enumerate(steps) if step.geometry.batches != count or step.is_general), len(steps))
    while end > 0 and _is_product(steps[end - 1]):
        end -= 1
    if count == 1 or sum(step.flops for step in steps[:end]) < LEAST_FLOPS * count:
        return 0
    return next((n for n in range(end, 1, -1) if _can_be_cut(steps, n, memories, device)), 0)


def one_image(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps for one image, on parts of their memories."""
    count = steps[0].geometry.batches
    parts: dict[Memory, Images] = {}

    def part(memory: Memory) -> Images:
        if not isinstance(memory, BoundOperand | Scratch):
            raise TypeError(f"images of {memory}")
        return parts.setdefault(memory, Images(memory, count))

    return tuple(
        replace(
            step,
            source=part(step.source),
            output=part(step.output),
            residual=None if step.residual is None else part(step.residual),
            geometry=replace(step.geometry, batches=1),
            flops=step.flops // count,
            bytes_moved=step.bytes_moved // count,
        )
        for step in steps
    )


def _is_product(step: Step) -> bool:
    g = step.geometry
    return not step.by_channel and g.output_height * g.output_width == 1


def _can_be_cut(steps: Sequence[Step], n: int, memories: Memories, device: DeviceProfile) -> bool:
    """Tell whether every image of what others see begins where a buffer may begin; constants are not cut at all."""
    count = steps[0].geometry.batches
    first = memories.only_within(steps[:n], steps[n:])
    seen = [one for step in steps[:n] for one in step.memories if not first.is_inner(one)]
    if any(isinstance(one, BoundOperand) and one.is_constant for one in seen):
        return False
    alignment = max(64, device.mem_base_addr_align_bytes)
    return all(one.size_bytes % (count * alignment) == 0 for one in seen)

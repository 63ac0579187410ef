# SPDX-License-Identifier: Apache-2.0
"""Numbers that launchers may turn for speed, with defaults that are good on every device.

None of the values changes what is computed, except the order of sums where a parameter says so.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_CPUS, _OF_GPUS = ("cpu",), ("gpu",)


def _number(default: int, candidates: tuple[int, ...], meaning: str, classes: tuple[str, ...]) -> int:
    """Declare a field: its default, the values worth trying, what it means, the classes of devices that use it."""
    chosen: int = field(default=default, metadata={"candidates": candidates, "meaning": meaning, "classes": classes})
    return chosen


@dataclass(frozen=True)
class Tuning:
    """All that can be tuned; every field is a whole number among its candidates."""

    chain_steps: int = _number(
        1024, (1, 32, 1024), "operations that one launch joins at most; 1: every operation is a launch", _OF_CPUS
    )
    bands: int = _number(2, (1, 2, 3, 4), "tasks of a core's part of an operation", _OF_CPUS)
    bands_of_large_steps: int = _number(4, (2, 4, 6, 8), "the same for large operations", _OF_CPUS)
    least_task_flops: int = _number(100_000, (30_000, 100_000, 300_000), "a task has at least so much work", _OF_CPUS)
    few_pixels: int = _number(
        28, (14, 28, 56), "fewer pixels per core: every core gets channels of its own; of 8-bit data half", _OF_CPUS
    )
    elementwise_local: int = _number(
        64, (32, 64, 128, 256), "work-items of a group where each computes one element", _OF_GPUS
    )
    middle_tile: int = _number(
        90,
        (50, 70, 90),
        "speed of products in tiles of 64 x 64, in percent of those of 128 x 128; sums in another order",
        _OF_GPUS,
    )
    small_tile: int = _number(40, (40, 60, 80), "the same of tiles of 32 x 32", _OF_GPUS)
    turn_cycles: int = _number(
        500,
        (150, 300, 500, 1000),
        "cycles for which a tile's group waits for its next terms; sums in another order",
        _OF_GPUS,
    )
    unit_sums: int = _number(
        32,
        (8, 16, 32, 64),
        "sums to which matrix units add 64 bytes of terms in a cycle; sums in another order",
        _OF_GPUS,
    )
    narrow_rows: int = _number(
        4, (1, 4, 8, 16), "rows of a product at most whose every sum a group shares; sums in another order", _OF_GPUS
    )
    shared_outputs: int = _number(
        4096,
        (256, 1024, 4096, 16384),
        "outputs of a pooling or a mean at most that groups share; sums in another order",
        _OF_GPUS,
    )

    def check(self) -> None:
        """Raise ValueError for a value that is not among its candidates."""
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is not int or value not in one.metadata["candidates"]:
                raise ValueError(f"tuning: {one.name} must be one of {one.metadata['candidates']}, got {value!r}")

    @classmethod
    def of(cls, values: Mapping[str, int]) -> Tuning:
        """Return checked values, defaults for those not named; raises ValueError."""
        unknown = set(values) - {one.name for one in fields(cls)}
        if unknown:
            raise ValueError(f"tuning: nothing is called {min(unknown)!r}")
        found = cls(**values)
        found.check()
        return found

# SPDX-License-Identifier: Apache-2.0
"""What `nnrt benchmark` finds out: the values that its table, its JSON and its page show."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nn_runtime.cli.roofline import Rates
    from nn_runtime.hal.peaks import Arithmetic, Peaks

_PERCENTILES = (25, 50, 75, 90, 99)
OUTSIDE = "the runtime, the drivers, cores that wake, wait or have no task"
"""What takes the time of a run that is no launch's."""


@dataclass(frozen=True)
class Clock:
    """Statistics of some runs, in ns."""

    count: int
    first: int
    minimum: int
    maximum: int
    mean: float
    deviation: float
    p25: float
    p50: float
    p75: float
    p90: float
    p99: float

    @classmethod
    def of(cls, times_ns: Sequence[int]) -> Clock:
        """Return the statistics of at least one run."""
        percentiles = (float(value) for value in np.percentile(times_ns, _PERCENTILES))
        return cls(
            len(times_ns), times_ns[0], min(times_ns), max(times_ns), statistics.fmean(times_ns),
            statistics.pstdev(times_ns), *percentiles,
        )  # fmt: skip


@dataclass(frozen=True)
class Timed:
    """The runs with the driver's clock. A part is None where the driver does not know it."""

    on_device: Clock | None
    in_driver: Clock | None
    wall: Clock


@dataclass(frozen=True)
class Launch:
    """One row of the profile over all profiled runs: medians in ns, `start` from the start of its step.

    node_type: the operations it computes, `CONV_2D+ADD` where they are fused. result: the shape that the last of them
    makes. share: of the time in launches.
    """

    node_type: str
    result: str
    kernel: str
    device: str
    operations: tuple[int, ...]
    start: float
    first: int
    median: float
    share: float
    cumulated_share: float
    bytes_moved: int
    times_called: int
    flops: int
    arithmetic: Arithmetic
    rates: Rates


@dataclass(frozen=True)
class Report:
    """Everything that is printed. Times in ns. `statistics`: what the devices count, over the whole process."""

    devices: dict[str, int]
    init: int
    first_inference: int
    warmup: Clock
    inference: Clock
    timed: Timed | None
    launches: tuple[Launch, ...]
    profiled: Clock | None
    statistics: dict[str, Mapping[str, int | float]]
    peaks: dict[str, Peaks]
    profile_note: str
    circumstances: tuple[str, ...]
    """When, by what and on what it was measured, a line each."""

    def profiling_cost(self, profiled: Clock) -> str:
        """Return what profiling adds to a run, in percent; "within noise" where quartiles overlap, or less than 0."""
        plain = self.inference
        if profiled.p50 <= plain.p50 or profiled.p25 <= plain.p75:
            return "within noise"
        return f"{profiled.p50 / plain.p50 - 1:+.1%}"

    def outside_launches(self, profiled: Clock) -> float:
        """Return the time in ns of a profiled run that is in none of its launches: runtime, driver, waiting."""
        return max(0.0, profiled.p50 - sum(launch.median for launch in self.launches))

# SPDX-License-Identifier: Apache-2.0
"""What a session tells of its runs: times, a profile by step and launch, and where each operation runs and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nn_runtime.step import StepProfile


@dataclass(frozen=True)
class Timing:
    """Times of a measured run in ns; None where the driver does not know."""

    on_device_ns: int | None
    in_driver_ns: int | None


@dataclass(frozen=True)
class StepTimes:
    """One step of a profiled run; `start_ns` counts from the start of the first step."""

    device: str
    operations: tuple[int, ...]
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class OperationTimes:
    """One launch of a profiled run: the operations it computes (several when fused), by index in the model.

    `start_ns` counts from the start of its step. `on_bytes`: products of real numbers are computed on bytes made of
    them (`Network.compile`: `dynamic_quantization`).
    """

    operations: tuple[int, ...]
    device: str
    kernel: str
    start_ns: int
    duration_ns: int
    bytes_moved: int
    flops: int
    on_bytes: bool

    @property
    def name(self) -> str:
        """The kernel, and how it computes where there are several ways."""
        return f"{self.kernel} on bytes" if self.on_bytes else self.kernel


@dataclass(frozen=True)
class Profile:
    """Times per step, and per launch where the drivers report them. Printable."""

    steps: tuple[StepTimes, ...]
    rows: tuple[OperationTimes, ...]

    def __str__(self) -> str:
        lines = [
            f"step {at}: {counted(len(step.operations), 'operation')} on {step.device}, "
            f"{duration_text(step.duration_ns)}"
            for at, step in enumerate(self.steps)
        ]
        table = [("operations", "kernel", "device", "time")]
        table += [
            (",".join(map(str, row.operations)), row.name, row.device, duration_text(row.duration_ns))
            for row in self.rows
        ]
        return "\n".join([*lines, *(_table(table) if self.rows else [])])

    def times_by_operation(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the time in ns of each operation that begins a launch, and for the fused ones which that is."""
        times: dict[int, int] = {}
        fused: dict[int, int] = {}
        for row in self.rows:
            first, *others = row.operations or (-1,)
            times[first] = times.get(first, 0) + row.duration_ns
            fused.update(dict.fromkeys(others, first))
        return times, {operation: first for operation, first in fused.items() if operation not in times}


@dataclass(frozen=True)
class ExplainedOperation:
    """Where one operation runs and why.

    `refusals`: reasons of the devices that do not take it. `elsewhere_ns`: where estimates decide, those for the other
    devices, by name; a plan's time as a whole counts, so that the slower one may win. `measured_ns` is of the last
    profiled run: the launch's time with the first operation that it computes, 0 with the others (`fused_into` names the
    first), None without a profile.
    """

    index: int
    name: str
    device: str
    step: int
    refusals: Mapping[str, str]
    estimated_ns: float | None
    measured_ns: int | None
    fused_into: int | None
    elsewhere_ns: Mapping[str, float]

    @property
    def why(self) -> str:
        """What other devices say: refusals, and estimates."""
        others = [f"{device}: {duration_text(ns)}" for device, ns in self.elsewhere_ns.items()]
        return "; ".join([*(f"{device}: {reason}" for device, reason in self.refusals.items()), *others])


@dataclass(frozen=True)
class Explanation:
    """Every operation of a network. Printable, and a sequence of its operations.

    `passed_over`: items of the device selector that match no usable device.
    """

    operations: tuple[ExplainedOperation, ...]
    passed_over: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[ExplainedOperation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def __getitem__(self, at: int) -> ExplainedOperation:
        return self.operations[at]

    def __str__(self) -> str:
        table = [("operation", "name", "step", "device", "estimated", "measured", "other devices")]
        table += [
            (
                str(row.index),
                row.name,
                str(row.step),
                row.device,
                duration_text(row.estimated_ns),
                f"with {row.fused_into}" if row.fused_into is not None else duration_text(row.measured_ns),
                row.why,
            )
            for row in self.operations
        ]
        absent = [f"{item}: no device of it can be used; nnrt doctor says why" for item in self.passed_over]
        return "\n".join([*_table(table), *absent])


def profile_of(steps: Sequence[StepProfile]) -> Profile:
    """Return the times of a run's steps, in order, and of the launches of those whose drivers report them.

    Raises BadData for a driver's rows of operations that its step does not have.
    """
    for step in steps:
        step.check_rows()
    origin = steps[0].start_ns if steps else 0
    rows = [
        OperationTimes(
            tuple(step.operations[at] for at in row.operations),
            step.device,
            row.kernel,
            row.start_ns,
            row.end_ns - row.start_ns,
            row.bytes_moved,
            row.flops,
            row.on_bytes,
        )
        for step in steps
        if step.rows is not None
        for row in step.rows.rows
    ]
    return Profile(
        tuple(
            StepTimes(step.device, step.operations, step.start_ns - origin, step.end_ns - step.start_ns)
            for step in steps
        ),
        tuple(rows),
    )


def duration_text(duration_ns: float | None) -> str:
    """Return a duration in the unit that suits it: `812 us`, `3.21 ms`, `1.53 s`; `-` where there is none."""
    if duration_ns is None:
        return "-"
    if duration_ns < 1e6:
        return f"{duration_ns / 1e3:.0f} us" if duration_ns >= 1e4 else f"{duration_ns / 1e3:.1f} us"
    if duration_ns < 1e9:
        return f"{duration_ns / 1e6:.2f} ms"
    return f"{duration_ns / 1e9:.2f} s"


def counted(count: int, what: str) -> str:
    """Return a number of things: `1 step`, `3 steps`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

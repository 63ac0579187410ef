# SPDX-License-Identifier: Apache-2.0
"""Time a network on random inputs.

Prints the lines of TFLite's benchmark_model (microseconds), then median and percentiles of the wall time. Where the
network runs whole on one device, the same number of runs is repeated with the driver's clock: the time on the device
and in the driver, beside the wall time of those runs. Then follows what each device counts of itself, such as programs
built and bytes moved. --profile adds a table per launch, as the drivers report it, with the operations that were
fused into one, rates, and the part of the device's measured peaks that each reaches. --html writes that as a page
with a roofline.

Inputs are the same in every process: floats from -1 to 1, 8-bit integers of the whole range, other integers from 0 to
99, so that a loop which one of them counts goes round less than a hundred times.

Init is reading the file, converting and compiling it, and where several devices may be the fastest, choosing by a first
run and compiling for the one chosen. The first inference may still fill caches.
"""

from __future__ import annotations

import itertools
import platform
import statistics
import time
from collections import defaultdict
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime import __version__
from nn_runtime.cli.networks import (
    add_network_arguments,
    compile_for_timing,
    loaded,
    missing_opencl_lines,
    places,
    places_text,
    positive,
    random_input,
    seconds,
    statistics_text,
)
from nn_runtime.cli.output import (
    busy,
    check_folder,
    new_file,
    print_json,
    print_lines,
    progress,
    table,
)
from nn_runtime.cli.roofline import arithmetic_of, peaks_of, rates
from nn_runtime.cli.timings import OUTSIDE, Clock, Launch, Report, Timed
from nn_runtime.codes import operation_name
from nn_runtime.device import REFERENCE_NAME
from nn_runtime.devices import find_device
from nn_runtime.hal.files import result_file
from nn_runtime.reports import duration_text
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from nn_runtime.cli.inputs import Array
    from nn_runtime.hal.peaks import Arithmetic, Peaks
    from nn_runtime.model import Model
    from nn_runtime.reports import Explanation, OperationTimes
    from nn_runtime.session import Session

_JOINED = (
    "Operations joined in one launch overlap: the time of one is that of its tasks, shared out among the cores, by the "
    "processor's cycle counter. Where kernels cannot read a clock they are run one at a time, which costs more."
)
_ABOVE_THE_ROOF = (
    "Above 100 % of the roof: Winograd takes fewer products than are counted, or the machine was slower when the peaks "
    "were measured."
)
_TOP = 10
_SEED = 0


@dataclass(frozen=True)
class _Operations:
    """What the profile says of operations, by index: their names, the shapes of their results, their arithmetic."""

    names: Mapping[int, str]
    results: Mapping[int, str]
    arithmetic: Mapping[int, Arithmetic]

    @classmethod
    def of(cls, model: Model) -> _Operations:
        """Return what is known of the operations of a finished model."""
        main = model.hal.main
        shapes = ["x".join(map(str, operand.dimensions)) for operand in main.operands]
        numbered = list(zip(model.run_order, main.operations, strict=True))
        return cls(
            {number: operation_name(operation.type) for number, operation in numbered},
            {number: shapes[operation.outputs[0]] for number, operation in numbered},
            {number: arithmetic_of(main, operation) for number, operation in numbered},
        )

    def arithmetic_of_launch(self, row: OperationTimes) -> Arithmetic:
        """Return the kind that a launch is counted as: of 8 bits if any of its operations is."""
        kinds = {self.arithmetic.get(operation, "float32") for operation in row.operations}
        if row.on_bytes or "quant8" in kinds:
            return "quant8"
        return "float16" if kinds == {"float16"} else "float32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    add_network_arguments(parser)
    parser.add_argument("--runs", metavar="N", type=positive, default=50, help="runs to time (default: 50)")
    parser.add_argument("--warmup", metavar="N", type=positive, default=5, help="runs before them (default: 5)")
    parser.add_argument("--max-secs", metavar="S", type=seconds, default=30.0,
                        help="stop each part after so many seconds (default: 30)")  # fmt: skip
    parser.add_argument("--profile", action="store_true", help="print a table per launch")
    parser.add_argument("--html", metavar="FILE", type=new_file, help="write the profile as a page with a roofline")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, times in ns")


def run(args: argparse.Namespace) -> int:
    """Run and print the report."""
    if args.html:
        check_folder("--html", args.html)
    start = time.perf_counter_ns()
    with busy("preparing"), loaded(args) as network:
        session, has_clock = compile_for_timing(
            network, args.device, args.partition, args.cache_dir, args.dynamic_quantization
        )
        operations = _Operations.of(network.model)
    init = time.perf_counter_ns() - start
    with session:
        random = np.random.default_rng(_SEED)
        inputs = [random_input(info, random) for info in session.inputs]
        explanation = session.explain()
        report = _measure(session, inputs, args, init, has_clock, operations)
    if args.html:
        from nn_runtime.cli.profile_page import profile_page

        with result_file(args.html) as file:
            page = profile_page(Path(args.model).name, report)
            file.write(page.encode(errors="backslashreplace"))  # names of files may be no text
    if args.json:
        print_json(asdict(report))
    else:
        print_lines([*_lines(report, explanation), *missing_opencl_lines(args.device)])
    return 0


def _measure(
    session: Session, inputs: list[Array], args: argparse.Namespace, init: int, has_clock: bool, operations: _Operations
) -> Report:
    def once(**options: bool) -> int:
        start = time.perf_counter_ns()
        session.run(inputs, **options)
        return time.perf_counter_ns() - start

    warmup = [once() for _ in _runs("warming up", args.warmup, args.max_secs)]
    wall = [once() for _ in _runs("timing", args.runs, args.max_secs)]
    timed = _timed(session, inputs, args) if has_clock else None
    explanation = session.explain()
    launches: tuple[Launch, ...] = ()
    profiled: list[int] = []
    peaks: dict[str, Peaks] = {}
    if args.profile or args.html:
        with busy("measuring the peaks of the devices"):
            peaks = peaks_of(session.devices_used)
        launches, profiled = _profiled(session, inputs, args, operations, peaks)
    note = profile_note(launches)
    return Report(
        {place.device: place.operations for place in places(explanation)}, init, warmup[0], Clock.of(warmup),
        Clock.of(wall), timed, launches, Clock.of(profiled) if profiled else None,
        {device: find_device(device).statistics() for device in session.devices_used}, peaks, note,
        _circumstances(session.devices_used),
    )  # fmt: skip


def profile_note(launches: Sequence[Launch]) -> str:
    """Return what a reader of a profile with these launches has to know."""
    notes = {
        _JOINED: any(launch.device != REFERENCE_NAME for launch in launches),
        _ABOVE_THE_ROOF: any((launch.rates.of_roof or 0) > 1 for launch in launches),
    }
    return " ".join(note for note, is_needed in notes.items() if is_needed)


def _circumstances(names: Sequence[str]) -> tuple[str, ...]:
    now = datetime.now(tz=timezone.utc)
    lines = [f"Measured {now:%Y-%m-%d %H:%M} UTC by nnrt {__version__}, Python {platform.python_version()}."]
    for name in names:
        device = find_device(name)
        found = device.description
        what = f"{found.device_name}, {found.platform_name}, {device.version}" if found else device.version
        lines.append(f"{name}: {what}.")
    return tuple(lines)


def _runs(what: str, count: int, max_secs: float) -> Iterable[int]:
    """Count the runs, at least one, until the time is up."""
    end = time.monotonic() + max_secs
    for at in progress(what, count):
        if at and time.monotonic() > end:
            return
        yield at


def _timed(session: Session, inputs: list[Array], args: argparse.Namespace) -> Timed:
    on_device: list[int] = []
    in_driver: list[int] = []
    wall: list[int] = []
    for _ in _runs("timing on the device", args.runs, args.max_secs):
        start = time.perf_counter_ns()
        session.run(inputs, measure=True)
        wall.append(time.perf_counter_ns() - start)
        timing = session.timing
        if timing is not None and timing.on_device_ns is not None:
            on_device.append(timing.on_device_ns)
        if timing is not None and timing.in_driver_ns is not None:
            in_driver.append(timing.in_driver_ns)
    return Timed(Clock.of(on_device) if on_device else None, Clock.of(in_driver) if in_driver else None, Clock.of(wall))


def _profiled(
    session: Session,
    inputs: list[Array],
    args: argparse.Namespace,
    operations: _Operations,
    peaks: Mapping[str, Peaks],
) -> tuple[tuple[Launch, ...], list[int]]:
    """Return the launches of the profiled runs, in run order, and the wall times of those runs."""
    runs = []
    wall = []
    for _ in _runs("profiling", args.runs, args.max_secs):
        start = time.perf_counter_ns()
        session.run(inputs, profile=True)
        wall.append(time.perf_counter_ns() - start)
        if session.profile is not None:
            runs.append(session.profile.rows)
    # A network of unknown shapes may be launched differently from run to run: the last way counts.
    runs = [rows for rows in runs if len(rows) == len(runs[-1])]
    return _launches(runs, operations, peaks), wall


def _launches(
    runs: Sequence[Sequence[OperationTimes]], operations: _Operations, peaks: Mapping[str, Peaks]
) -> tuple[Launch, ...]:
    """Return one row per launch over runs that launched the same, all of its figures from medians."""
    medians = [statistics.median(row.duration_ns for row in same) for same in zip(*runs, strict=True)]
    total = sum(medians) or 1.0
    cumulated = np.cumsum(medians) / total
    launches = []
    for at, same in enumerate(zip(*runs, strict=True)):
        one = same[0]
        arithmetic = operations.arithmetic_of_launch(one)
        launches.append(Launch(
            node_type([operations.names.get(operation, "?") for operation in one.operations]) or one.kernel,
            operations.results.get(one.operations[-1], "") if one.operations else "",
            one.name,
            one.device, one.operations, statistics.median(row.start_ns for row in same), one.duration_ns,
            medians[at], medians[at] / total, float(cumulated[at]), one.bytes_moved, len(same), one.flops, arithmetic,
            rates(one.flops, one.bytes_moved, medians[at], peaks.get(one.device), arithmetic),
        ))  # fmt: skip
    return tuple(launches)


def node_type(names: Sequence[str]) -> str:
    """Return the names of what a launch does; of more than two in a row that are the same, one and how many."""
    runs = ((name, len(list(same))) for name, same in itertools.groupby(names))
    return "+".join(f"{name} x {count}" if count > 2 else "+".join([name] * count) for name, count in runs)


def _lines(report: Report, explanation: Explanation) -> list[str]:
    inference = report.inference
    lines = [
        places_text(explanation),
        f"Inference timings in us: Init: {report.init / 1e3:.0f}, "
        f"First inference: {report.first_inference / 1e3:.0f}, "
        f"Warmup (avg): {report.warmup.mean / 1e3:.1f}, Inference (avg): {inference.mean / 1e3:.1f}",
        "",
        *table(("", "runs", "median", "p90", "p99", "min", "max", "std"), _clock_rows(report),
               ("runs", "median", "p90", "p99", "min", "max", "std")),
    ]  # fmt: skip
    if report.timed is None:
        lines.append("time on the device: known only where one device runs the whole network")
    elif report.timed.on_device is None:
        lines.append(f"time on the device: {', '.join(report.devices)} tells none")
    lines += [f"{device}: {statistics_text(counts)}" for device, counts in report.statistics.items() if counts]
    if report.profiled is not None:
        lines += _profile_lines(report, report.profiled)
    return lines


def _clock_rows(report: Report) -> list[tuple[str, ...]]:
    clocks: list[tuple[str, Clock | None]] = [("wall", report.inference)]
    if report.timed is not None:
        clocks += [
            ("on device", report.timed.on_device),
            ("in driver", report.timed.in_driver),
            ("wall, timed", report.timed.wall),
        ]
    return [_clock_row(name, clock) for name, clock in clocks]


def _clock_row(name: str, clock: Clock | None) -> tuple[str, ...]:
    if clock is None:
        return (name, *["-"] * 7)
    figures = (clock.p50, clock.p90, clock.p99, clock.minimum, clock.maximum, clock.deviation)
    return (name, str(clock.count), *map(duration_text, figures))


def _profile_lines(report: Report, profiled: Clock) -> list[str]:
    launches = report.launches
    if not launches:
        return ["", "the devices report no profile"]
    slowest = sorted(launches, key=lambda launch: -launch.median)[:_TOP]
    return [
        "", "Run Order", *_launch_table(launches),
        "", "Top by Computation Time", *_launch_table(slowest),
        "", "Summary by node type", *_type_table(launches),
        f"not in launches: {_ms(report.outside_launches(profiled))} of {_ms(profiled.p50)} ms, the median run "
        f"({OUTSIDE})",
        "",
        *(_peaks_line(device, peaks) for device, peaks in report.peaks.items()),
        f"cost of profiling: {report.profiling_cost(profiled)}. {report.profile_note}".rstrip(),
        f"Timings (microseconds): count={profiled.count} first={profiled.first / 1e3:.0f} "
        f"min={profiled.minimum / 1e3:.0f} max={profiled.maximum / 1e3:.0f} avg={profiled.mean / 1e3:.1f} "
        f"std={profiled.deviation / 1e3:.0f}",
    ]  # fmt: skip


_LAUNCH_COLUMNS = (
    "[node type]", "[start]", "[first]", "[median ms]", "[%]", "[cdf%]", "[mem KB]", "[times called]",
    "[Gop/s]", "[GB/s]", "[% of roof]", "[Name]",
)  # fmt: skip
_TYPE_COLUMNS = ("[node type]", "[count]", "[median ms]", "[%]", "[cdf %]", "[mem KB]", "[times called]")


def _launch_table(launches: Sequence[Launch]) -> list[str]:
    """[start] counts from the start of the step; [mem KB] is what the launch reads and writes."""
    cumulated = itertools.accumulate(launch.share for launch in launches)
    rows = [
        (
            launch.node_type, _ms(launch.start), _ms(launch.first), _ms(launch.median), f"{launch.share:.1%}",
            f"{so_far:.1%}", f"{launch.bytes_moved / 1024:.1f}", str(launch.times_called),
            f"{launch.rates.operations_per_ns:.1f}" if launch.flops else "-", f"{launch.rates.bytes_per_ns:.1f}",
            "-" if launch.rates.of_roof is None else f"{launch.rates.of_roof:.0%} {launch.rates.bound[:1]}",
            " ".join([launch.kernel, ",".join(map(str, launch.operations))]).rstrip(),
        )
        for launch, so_far in zip(launches, cumulated, strict=True)
    ]  # fmt: skip
    return table(_LAUNCH_COLUMNS, rows, right=_LAUNCH_COLUMNS[1:-1])


def _peaks_line(device: str, peaks: Peaks) -> str:
    return (
        f"measured peaks of {device}: float32 {peaks.float32:.0f} G operations/s, float16 {peaks.float16:.0f}, "
        f"8-bit {peaks.quant8:.0f}, caches {peaks.cache:.0f} GB/s, memory {peaks.memory:.0f} GB/s; % of roof: "
        "a = of arithmetic, m = of the caches"
    )


def _type_table(launches: Sequence[Launch]) -> list[str]:
    groups: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        groups[launch.node_type].append(launch)
    rows = []
    cumulated = 0.0
    for name, group in sorted(groups.items(), key=lambda item: -sum(launch.median for launch in item[1])):
        share = sum(launch.share for launch in group)
        cumulated += share
        rows.append((
            name, str(len(group)), _ms(sum(launch.median for launch in group)), f"{share:.1%}", f"{cumulated:.1%}",
            f"{sum(launch.bytes_moved for launch in group) / 1024:.1f}", str(len(group)),
        ))  # fmt: skip
    return table(_TYPE_COLUMNS, rows, right=_TYPE_COLUMNS[1:])


def _ms(duration_ns: float) -> str:
    return f"{duration_ns / 1e6:.3f}"

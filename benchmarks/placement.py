# SPDX-License-Identifier: Apache-2.0
"""Cost-aware plans beside every single device, on real networks and random graphs: is a plan ever slower than the best?

    python benchmarks/placement.py FILE [--seconds N] [--graphs N] [--seed N] [--devices LIST ...]

FILE takes all times as JSON. With --seconds the run stops after so long, and the same command goes on where it stopped
(exit status 3: not finished). Networks are found in NNRT_MODEL_DIR (default: ../shared/models beside the checkout).

Plans and devices run in turn in short slices; a ratio is the median over the rounds of the plan's time to that of the
device with the least median. Ratios above the limit get more rounds of the same sessions. Hosts change their speed
within minutes, so a plan that stays above is compiled anew, its first run included, and measured twice more: the row
with the median of the three ratios counts, and all three are told. The exit status is 1 if one stays above.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import nn_runtime as nn
from nn_runtime.devices import reference_device, select
from nn_runtime.network import Network
from nn_runtime.testing.conformance import ndk_model
from nn_runtime.testing.random_graph import Size, example_of, generate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Array
    from nn_runtime.session import Session

MODELS = Path(os.environ.get("NNRT_MODEL_DIR", Path(__file__).parents[2] / "shared" / "models"))
LISTS = ("opencl:pocl,cpu", "opencl:intel,cpu", "opencl:intel,opencl:pocl,cpu")
LIMIT = 1.05
ROUNDS = 9
MORE_ROUNDS = 45
"""Where a ratio is above the limit."""
ATTEMPTS = 3
"""Compilations that are measured where the first one's ratio is."""
SLICE_SECONDS = 0.004
HOPELESS = 3.0
"""Times the fastest session's time, above which a single device gets no more rounds after the first three."""
PLAN = "plan"
SIZES = (Size.SINGLE, Size.SMALL, Size.SMALL, Size.LARGE, Size.LARGE)
UNFINISHED = 3


@dataclass(frozen=True)
class Subject:
    """A network with inputs."""

    name: str
    network: Network
    inputs: list[Array]


@dataclass(frozen=True)
class Row:
    """A plan over a list of devices: what the estimates and the first run chose, the best single device.

    `ratio`: of the plan's time to the best device's. Times in us: medians, and of every round in `times_us`.
    `attempts`: ratios of all compilations that were measured, the first one first.
    """

    name: str
    devices: str
    estimated: str
    uses: str
    best: str
    ratio: float
    plan_us: float
    singles_us: dict[str, float]
    first_run_ms: float
    times_us: dict[str, list[float]]
    attempts: tuple[float, ...] = ()


def main() -> int:
    """Measure, print, and return 1 if a plan is slower than the best single device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", nargs="+", default=LISTS, metavar="LIST")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    rows = _read(arguments.file)
    done = {(row.devices, row.name) for row in rows}
    every = list(itertools.product(arguments.devices, subject_names(arguments.graphs, arguments.seed)))
    for selector, name in every:
        if (selector, name) in done:
            continue
        if time.monotonic() > end:
            print(f"not finished, {len(rows)} of {len(every)} so far: give the same command again")
            return UNFINISHED
        row = settled(name, selector)
        if row is not None:
            rows.append(row)
            show(row)
            _write(arguments.file, rows)
    return report(rows, arguments.devices)


def subject_names(graphs: int, seed: int) -> list[str]:
    """Return the networks in the folder, then random graphs of all sizes."""
    found = [path.stem for path in sorted(MODELS.glob("*.tflite"))]
    return found + [f"{SIZES[at % len(SIZES)].value} graph {seed + at}" for at in range(graphs)]


def subject_of(name: str) -> Subject | None:
    """Return a network by its name; None for a graph whose seed found too few operations."""
    size, _, number = name.rpartition(" graph ")
    if not size:
        network = nn.load(MODELS / f"{name}.tflite")
        rng = np.random.default_rng(0)
        inputs = [(rng.random([size or 1 for size in i.shape]) * 100).astype(i.dtype) for i in network.inputs]
        return Subject(name, network, inputs)
    try:
        graph = generate(int(number), Size(size), reference_device().hal)
    except RuntimeError:
        return None
    network = Network.from_model(ndk_model(example_of(graph)))
    return Subject(name, network, [value.array for value in graph.inputs if value.array is not None])


def settled(name: str, selector: str) -> Row | None:
    """Measure one compilation, or the median one of three where the first is above the limit; None as `subject_of`."""
    rows: list[Row] = []
    while len(rows) < (ATTEMPTS if rows and rows[0].ratio > LIMIT else 1):
        subject = subject_of(name)
        if subject is None:
            return None
        rows.append(measure(subject, selector))
    middle = sorted(rows, key=lambda row: row.ratio)[len(rows) // 2]
    return replace(middle, attempts=tuple(row.ratio for row in rows))


def measure(subject: Subject, selector: str) -> Row:
    """Time the plan of a network over a list of devices and every single one of these, in turn.

    Other devices are left alone: the threads of one runtime keep a core awake for another's.
    """
    devices = {device.name: device for device in select(selector).devices}
    sessions = {name: subject.network.compile([device]) for name, device in devices.items()}
    sessions[PLAN] = subject.network.compile(selector)
    estimated = "+".join(sessions[PLAN].devices_used)
    first_us = {name: _timed(session, subject.inputs) for name, session in sessions.items()}
    rounds = Rounds(sessions, subject.inputs)
    rounds.run(ROUNDS)
    if rounds.ratio() > LIMIT:
        rounds.run(MORE_ROUNDS)
    row = Row(
        subject.name,
        selector,
        estimated,
        "+".join(sessions[PLAN].devices_used),
        rounds.best(),
        rounds.ratio(),
        rounds.median(PLAN),
        {name: rounds.median(name) for name in devices},
        first_us[PLAN] / 1e3,
        {name: [round(us, 1) for us in times] for name, times in rounds.times.items()},
    )
    for session in sessions.values():
        session.close()
    subject.network.close()
    return row


class Rounds:
    """Times in us of sessions that run in turn, each round in a random order: each feels what ran before it."""

    def __init__(self, sessions: dict[str, Session], inputs: list[Array]) -> None:
        """`sessions`: PLAN and single devices, which have run once."""
        self._sessions = sessions
        self._inputs = inputs
        self._random = random.Random(0)
        self.times: dict[str, list[float]] = {name: [] for name in sessions}

    def run(self, count: int) -> None:
        """Add rounds."""
        for _ in range(count):
            names = [name for name in self._sessions if not self._is_hopeless(name)]
            for name in self._random.sample(names, len(names)):
                self.times[name].append(_slice(self._sessions[name], self._inputs))

    def median(self, name: str) -> float:
        """Return the median time of a session."""
        return statistics.median(self.times[name])

    def best(self) -> str:
        """Return the single device with the least median."""
        return min((name for name in self._sessions if name != PLAN), key=self.median)

    def ratio(self) -> float:
        """Return the median ratio of the plan's times to those of the best device in the same rounds."""
        return statistics.median(a / b for a, b in zip(self.times[PLAN], self.times[self.best()], strict=False))

    def _is_hopeless(self, name: str) -> bool:
        times = self.times[name]
        if name == PLAN or len(times) < 3:
            return False
        return min(times) > HOPELESS * min(map(self.median, self.times))


def _slice(session: Session, inputs: list[Array]) -> float:
    """Return the median time of the later half of runs in a slice; the earlier ones find threads and caches cold."""
    session.run(inputs)
    found: list[float] = []
    end = time.perf_counter() + SLICE_SECONDS
    while not found or time.perf_counter() < end:
        found.append(_timed(session, inputs))
    return statistics.median(found[len(found) // 2 :])


def _timed(session: Session, inputs: list[Array]) -> float:
    start = time.perf_counter()
    session.run(inputs)
    return (time.perf_counter() - start) * 1e6


def show(row: Row) -> None:
    """Print one row."""
    singles = "  ".join(f"{name} {duration:.0f}" for name, duration in row.singles_us.items())
    uses = row.uses if row.estimated == row.uses else f"{row.uses}, not {row.estimated}"
    mark = " <-- slower" if row.ratio > LIMIT else ""
    if len(row.attempts) > 1:
        mark += f" (of {', '.join(f'{ratio:.2f}' for ratio in row.attempts)})"
    print(f"{row.ratio:5.2f}  {row.name:28} {row.devices:30} {row.plan_us:8.0f} us on {uses}  ({singles}){mark}")
    sys.stdout.flush()


def report(rows: Sequence[Row], lists: Sequence[str]) -> int:
    """Print how many plans are within the limit, and return the exit status."""
    for selector in lists:
        found = [row for row in rows if row.devices == selector]
        ratios = [row.ratio for row in found]
        above = [row for row in found if row.ratio > LIMIT]
        print(
            f"{selector}: {len(ratios)} plans, median {statistics.median(ratios):.3f}, greatest {max(ratios):.2f}, "
            f"{len(above)} above {LIMIT}, {sum(len(row.attempts) > 1 for row in found)} at first; "
            f"the first run moved {sum(row.estimated != row.uses for row in found)}"
        )
        for row in found:
            if len(row.attempts) > 1:
                show(row)
    return int(any(row.ratio > LIMIT for row in rows))


def _read(file: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(file.read_text())] if file.exists() else []


def _write(file: Path, rows: Sequence[Row]) -> None:
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps([asdict(row) for row in rows]) + "\n")
    temporary.replace(file)


if __name__ == "__main__":
    sys.exit(main())

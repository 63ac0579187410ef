# SPDX-License-Identifier: Apache-2.0
"""Cost-aware plans beside every single device, on real networks and random graphs: is a plan ever slower than the best?

    python benchmarks/placement.py [--rounds N] [--graphs N] [--seed N] [--devices LIST ...] [--json FILE]

Networks are found in NNRT_MODEL_DIR (default: ../shared/models beside the checkout). Plan and devices run in turn in
short slices; a ratio is the median over the rounds of the plan's time to that of the best single device. Ratios above
the limit are measured again, longer. The exit status is 1 if one stays above.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import nn_runtime as nn
from nn_runtime.devices import reference_device, select
from nn_runtime.network import Network
from nn_runtime.testing.conformance import ndk_model
from nn_runtime.testing.random_graph import Size, example_of, generate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nn_runtime.operand import Array
    from nn_runtime.session import Session

MODELS = Path(os.environ.get("NNRT_MODEL_DIR", Path(__file__).parents[2] / "shared" / "models"))
LISTS = ("opencl:pocl,cpu", "opencl:intel,cpu", "opencl:intel,opencl:pocl,cpu")
LIMIT = 1.05
SLICE_SECONDS = 0.002
LONGER = 6
"""Times as many rounds for what is measured again."""
SIZES = (Size.SINGLE, Size.SMALL, Size.SMALL, Size.LARGE, Size.LARGE)


@dataclass(frozen=True)
class Subject:
    """A network with inputs."""

    name: str
    network: Network
    inputs: list[Array]


@dataclass(frozen=True)
class Row:
    """A plan over a list of devices: the devices it uses, the best single one, medians in us, and the ratio."""

    name: str
    devices: str
    uses: str
    best: str
    plan_us: float
    singles_us: Mapping[str, float]
    ratio: float


def main() -> int:
    """Measure, print, and return 1 if a plan is slower than the best single device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", nargs="+", default=LISTS, metavar="LIST")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[Row] = []
    for subject in subjects(arguments.graphs, arguments.seed):
        found = measure(subject, arguments.devices, arguments.rounds)
        if any(row.ratio > LIMIT for row in found):
            found = measure(subject, arguments.devices, arguments.rounds * LONGER)
        for row in found:
            show(row)
        rows += found
        subject.network.close()
    return report(rows, arguments.devices, arguments.json)


def subjects(graphs: int, seed: int) -> Iterator[Subject]:
    """Return the networks in the folder, then random graphs of all sizes."""
    rng = np.random.default_rng(seed)
    for path in sorted(MODELS.glob("*.tflite")):
        network = nn.load(path)
        inputs = [(rng.random([size or 1 for size in i.shape]) * 100).astype(i.dtype) for i in network.inputs]
        yield Subject(path.stem, network, inputs)
    for at in range(graphs):
        size = SIZES[at % len(SIZES)]
        try:
            graph = generate(seed + at, size, reference_device().hal)
        except RuntimeError:
            continue  # the seed found too few operations
        network = Network.from_model(ndk_model(example_of(graph)))
        kind = f"{size.value}{' dynamic' if graph.dynamic else ''} graph {seed + at}"
        yield Subject(kind, network, [value.array for value in graph.inputs if value.array is not None])


def measure(subject: Subject, lists: Sequence[str], rounds: int) -> list[Row]:
    """Time the plans of one network over lists of devices, and every single device of theirs, in turn."""
    selections = {selector: select(selector) for selector in lists}
    devices = {device.name: device for selection in selections.values() for device in selection.devices}
    singles = {name: subject.network.compile([device]) for name, device in devices.items()}
    plans = {selector: subject.network.compile(selector, partition="cost") for selector in lists}
    times = timed({**singles, **plans}, subject.inputs, rounds)
    rows = []
    for selector, selection in selections.items():
        middle = {device.name: statistics.median(times[device.name]) for device in selection.devices}
        best = min(middle, key=middle.__getitem__)
        ratio = statistics.median(a / b for a, b in zip(times[selector], times[best], strict=True))
        uses = "+".join(plans[selector].devices_used)
        rows.append(Row(subject.name, selector, uses, best, statistics.median(times[selector]), middle, ratio))
    for session in (*singles.values(), *plans.values()):
        session.close()
    return rows


def timed(sessions: Mapping[str, Session], inputs: list[Array], rounds: int) -> dict[str, list[float]]:
    """Return the median time in us of each session in each round; each round in another order."""
    for session in sessions.values():
        session.run(inputs)
    times: dict[str, list[float]] = {name: [] for name in sessions}
    names = list(sessions)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times[name].append(_slice(sessions[name], inputs))
    return times


def _slice(session: Session, inputs: list[Array]) -> float:
    session.run(inputs)  # wakes the device's threads, and does not count
    found: list[float] = []
    end = time.perf_counter() + SLICE_SECONDS
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(inputs)
        found.append((time.perf_counter() - start) * 1e6)
    return statistics.median(found)


def show(row: Row) -> None:
    """Print one row."""
    singles = "  ".join(f"{name} {duration:.0f}" for name, duration in row.singles_us.items())
    mark = " <-- slower" if row.ratio > LIMIT else ""
    print(f"{row.ratio:5.2f}  {row.name:28} {row.devices:30} {row.plan_us:8.0f} us on {row.uses}  ({singles}){mark}")
    sys.stdout.flush()


def report(rows: Sequence[Row], lists: Sequence[str], file: Path | None) -> int:
    """Print how many plans are within the limit, write JSON, and return the exit status."""
    for selector in lists:
        ratios = [row.ratio for row in rows if row.devices == selector]
        above = sum(ratio > LIMIT for ratio in ratios)
        print(
            f"{selector}: {len(ratios)} plans, median {statistics.median(ratios):.3f}, greatest {max(ratios):.2f}, "
            f"{above} above {LIMIT}"
        )
    if file is not None:
        file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(any(row.ratio > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())

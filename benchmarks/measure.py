# SPDX-License-Identifier: Apache-2.0
"""Paired runs: every engine in its own process runs for a short slice in turn, round after round.

Ratios are taken within a round, for what else goes on hits all engines of a round alike. Each round begins and ends
with a probe of how far the two cores are from each other, as far as virtual machines let them wander.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import engines
import networks
import numpy as np
from worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from networks import Array

Figures: TypeAlias = dict[str, Any]
"""Plain values that JSON can hold."""

SLICE_SECONDS = 0.1
LEAST_ROUNDS = 3
"""For what differs from round to round."""
NEAR_NS = 100.0
"""Cores that share a cache see each other's writes in less than this, others later."""
FLOAT_TOLERANCE, HALF_TOLERANCE, PIXELS_AGREE = 1e-4, 1e-2, 0.99


def compare(name: str, names: Sequence[str], seconds: float, peer: str = engines.LITERT) -> Figures:
    """Return the figures of engines on one network; `ratio` is the median over rounds of own time to the peer's."""
    data, wanted = networks.golden(name)
    with ExitStack() as stack:
        workers = {one: stack.enter_context(_worker(stack, one, networks.model_bytes(name), data)) for one in names}
        probe = stack.enter_context(_worker(stack, engines.PROBE, b"", data))
        running = {one: worker for one, worker in workers.items() if not worker.problem}
        rounds = _rounds(running, seconds, SLICE_SECONDS, probe)
        rows = {one: _first_figures(worker, wanted) for one, worker in workers.items()}
    near = [_is_near(one["distances"]) for one in rounds]
    for one in running:
        rows[one] |= _row(one, peer if peer in running else one, rounds, near)
    return {
        "rounds": len(rounds),
        "rounds_near": near.count(True),
        "rounds_far": near.count(False),
        "core_distance_ns": sorted({round(ns) for one in rounds for ns in one["distances"] if ns is not None}),
        "peer": peer,
        "rows": rows,
    }


def in_turn(workers: Mapping[str, Worker], peers: Mapping[str, str], seconds: float, slice_seconds: float) -> Figures:
    """Return the figures of engines that have a network already; without its peer, an engine's ratio is to itself."""
    running = {one: worker for one, worker in workers.items() if not worker.problem}
    rounds = _rounds(running, seconds, slice_seconds)
    rows: Figures = {one: {"problem": worker.problem} for one, worker in workers.items()}
    for one in running:
        peer = peers.get(one)
        rows[one] |= _row(one, peer if peer in running else one, rounds, [None] * len(rounds))
    return rows


def steadiness(name: str, names: Sequence[str], seconds: float, wanted_runs: int) -> Figures:
    """Return by engine how many times its median the 99th percentile is, of about so many runs without a pause a round.

    The median over rounds, and the least and the greatest: what else a host does may hit one engine and not another.
    `runs`: the fewest of a round.
    """
    data, _ = networks.golden(name)
    with ExitStack() as stack:
        workers = {one: stack.enter_context(_worker(stack, one, networks.model_bytes(name), data)) for one in names}
        running = {one: worker for one, worker in workers.items() if not worker.problem}
        needed = {
            one: wanted_runs * statistics.median(worker.slice(SLICE_SECONDS)) / 1e3 for one, worker in running.items()
        }
        rounds: list[Mapping[str, list[float]]] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(rounds) < LEAST_ROUNDS:
            rounds.append({one: worker.slice(needed[one]) for one, worker in running.items()})
    return {one: _slowest([times[one] for times in rounds]) for one in running}


def _slowest(rounds: Sequence[Sequence[float]]) -> Figures:
    ratios = [float(np.percentile(times, 99)) / statistics.median(times) for times in rounds]
    return {
        "p99": statistics.median(ratios),
        "range": [min(ratios), max(ratios)],
        "rounds": len(rounds),
        "runs": min(len(times) for times in rounds),
    }


@dataclass(frozen=True)
class _Size:
    """A network for one size of its input, with an engine's process each."""

    batches: int
    size: int
    multiply_adds: int
    workers: Mapping[str, Worker]
    ms: Mapping[str, list[float]]
    """Medians of the slices so far, by engine; as long as there were rounds."""

    def picoseconds(self, engine: str) -> list[float]:
        """Return the time per multiply-add of every round."""
        return [ms * 1e9 / self.multiply_adds for ms in self.ms[engine]]

    def row(self, engine: str, best: Sequence[float]) -> Figures:
        """Return medians over the rounds, also of the ratio to another size's times per multiply-add."""
        row = {"batches": self.batches, "size": self.size, "problem": self.workers[engine].problem}
        if not self.ms[engine]:
            return {**row, "ms": None, "picoseconds": None, "over_best": None}
        mine = self.picoseconds(engine)
        over = statistics.median(one / least for one, least in zip(mine, best, strict=True))
        return {**row, "ms": statistics.median(self.ms[engine]), "picoseconds": statistics.median(mine),
                "over_best": over}  # fmt: skip


def scaling(name: str, names: Sequence[str], shapes: Sequence[tuple[int, int]], seconds: float) -> Figures:
    """Return milliseconds and picoseconds per multiply-add for (batches, size) of the input, by engine."""
    with ExitStack() as stack:
        sizes = [_of_size(stack, name, names, batches, size) for batches, size in shapes]
        end, rounds = time.perf_counter() + seconds, 0
        while time.perf_counter() < end or not rounds:
            rounds += 1
            for one in sizes:
                for engine, worker in one.workers.items():
                    if not worker.problem:
                        one.ms[engine].append(statistics.median(worker.slice(SLICE_SECONDS)))
    rows = {}
    for engine in names:
        best = min((one.picoseconds(engine) for one in sizes if one.ms[engine]), key=statistics.median, default=[])
        rows[engine] = [one.row(engine, best) for one in sizes]
    return {"rounds": rounds, "rows": rows}


def _of_size(stack: ExitStack, name: str, names: Sequence[str], batches: int, size: int) -> _Size:
    model = networks.rescaled(networks.model_bytes(name), batches, size)
    dtype = networks.golden(name)[0].dtype
    low, high = (0, 255) if dtype == np.uint8 else (-1, 1)
    picture = np.random.default_rng(0).uniform(low, high, (batches, size, size, 3)).astype(dtype)
    workers = {one: stack.enter_context(_worker(stack, one, model, picture)) for one in names}
    return _Size(batches, size, networks.multiply_adds(model), workers, {one: [] for one in names})


def _worker(stack: ExitStack, engine: str, model: bytes, data: Array) -> Worker:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (folder / "model.tflite").write_bytes(model)
    np.savez(folder / "data.npz", data)
    return Worker(engine, folder / "model.tflite", folder / "data.npz")


def _rounds(
    workers: Mapping[str, Worker], seconds: float, slice_seconds: float, probe: Worker | None = None
) -> list[Figures]:
    rounds: list[Figures] = []
    order = list(workers)
    end = time.perf_counter() + seconds
    while not rounds or time.perf_counter() < end:
        distances = _distance(probe)
        times = {one: workers[one].slice(slice_seconds) for one in order}
        rounds.append({"times": times, "distances": [distances, _distance(probe)]})
        order = order[1:] + order[:1]
    return rounds


def _distance(probe: Worker | None) -> float | None:
    """Return how far the cores are now in ns, None where the probe does not find out."""
    return None if probe is None or probe.problem else min(probe.slice(0), default=None)


def _is_near(distances: Sequence[float | None]) -> bool | None:
    """Return whether the cores were near each other before and after a round; None where that is not clear."""
    near = {None if distance is None else distance < NEAR_NS for distance in distances}
    return near.pop() if len(near) == 1 else None


def _row(engine: str, peer: str, rounds: Sequence[Figures], near: Sequence[bool | None]) -> Figures:
    every = [ms for one in rounds for ms in one["times"][engine]]
    ratios = [statistics.median(one["times"][engine]) / statistics.median(one["times"][peer]) for one in rounds]
    return {
        "best_ms": min(every),
        "median_ms": statistics.median(every),
        "p99_ms": float(np.percentile(every, 99)),
        "runs": len(every),
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [float(value) for value in np.percentile(ratios, (25, 75))],
        "ratio_near": _median([ratio for ratio, state in zip(ratios, near, strict=True) if state is True]),
        "ratio_far": _median([ratio for ratio, state in zip(ratios, near, strict=True) if state is False]),
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _first_figures(worker: Worker, wanted: Array) -> Figures:
    if worker.problem:
        return {"problem": worker.problem}
    return {"problem": "", "first_seconds": worker.first_seconds, **agreement(worker.output, wanted)}


def agreement(output: Array, wanted: Array) -> Figures:
    """Return how far an answer is from the reference's, and whether that is the same answer."""
    if output.size != wanted.size:
        return {"agrees": False, "difference": f"shape {list(output.shape)}"}
    mine, golden = output.reshape(-1).astype(np.float64), wanted.reshape(-1).astype(np.float64)
    farthest = float(np.abs(mine - golden).max())
    if wanted.dtype == np.float32:
        tolerance = HALF_TOLERANCE if output.dtype == np.float16 else FLOAT_TOLERANCE
        return {"agrees": farthest <= tolerance, "difference": f"{farthest:.1e}"}
    if wanted.ndim > 2:  # a class for each pixel
        same = float(np.mean(mine == golden))
        return {"agrees": same >= PIXELS_AGREE, "difference": f"{same:.2%} of pixels equal"}
    return {"agrees": bool(mine.argmax() == golden.argmax()), "difference": f"{farthest:.0f} steps"}

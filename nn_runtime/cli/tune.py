# SPDX-License-Identifier: Apache-2.0
"""Search for the numbers with which a device runs networks fastest, and store them for it.

Every value of every parameter is tried beside the best so far, in paired runs on all the networks given; what is
faster by more than 1 % in three quarters of them, twice, is kept. Answers must stay the same: to the bit for 8-bit
outputs, within 1e-4 for floats. The result is a file for this device and driver version, used by every process from
then on; it can be shared, reviewed, and taken away again. NNRT_TUNING=FILE uses another one, NNRT_TUNING=off none.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.cli.networks import add_device_argument, load_file, positive, random_input
from nn_runtime.cli.output import UsageError, duration_text, print_json, print_lines, progress, table
from nn_runtime.devices import select
from nn_runtime.hal.tuning import Tunable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from nn_runtime.cli.inputs import Array
    from nn_runtime.device import Device
    from nn_runtime.network import Network
    from nn_runtime.session import Session

_SLICE_SECONDS = 0.02
_LEAST_GAIN = 0.01
_QUARTILE = 75
_TOLERANCE = 1e-4
_SEED = 0


@dataclass(frozen=True)
class Trial:
    """One value tried. ratio: time to that of the best values so far, under 1 is faster; why it was refused, or ""."""

    parameter: str
    value: int
    ratio: float
    kept: bool
    refusal: str = ""


@dataclass(frozen=True)
class Gain:
    """What tuning did for a network: medians of paired runs in ns, median and upper quartile of their ratios."""

    network: str
    before_ns: float
    after_ns: float
    ratio: float
    upper_ratio: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    parser.add_argument("models", metavar="MODEL", nargs="+", help=".tflite files")
    add_device_argument(parser)
    parser.add_argument("--rounds", metavar="N", type=positive, default=40,
                        help="paired slices of 0.02 s for every value and network (default: 40)")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="store nothing")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, times in ns")


def run(args: argparse.Namespace) -> int:
    """Search, print what was found, and store it."""
    device = select(args.device).devices[0]
    hal = device.hal
    parameters = hal.tuning_parameters() if isinstance(hal, Tunable) else ()
    if not isinstance(hal, Tunable) or not parameters:
        raise UsageError(f"{device.name} has nothing to tune")
    with ExitStack() as stack:
        networks = {path: stack.enter_context(load_file(path)) for path in args.models}
        search = _Search(device, hal, networks, args.rounds)
        in_force = hal.tuning()
        try:
            values, trials = search.run({one.name: one.default for one in parameters})
            gains = search.gains({one.name: one.default for one in parameters}, values)
        finally:
            hal.set_tuning(in_force)
    is_better = all(gain.ratio < 1 + _LEAST_GAIN for gain in gains) and any(gain.upper_ratio < 1 for gain in gains)
    path = None
    if is_better and not args.dry_run:
        path = hal.store_tuning(values, {"gains": [asdict(gain) for gain in gains], "rounds": args.rounds})
    if args.json:
        print_json({"device": device.name, "values": values, "gains": list(map(asdict, gains)),
                    "trials": list(map(asdict, trials)), "file": None if path is None else str(path)})  # fmt: skip
        return 0
    print_lines(_lines(hal, values, trials, gains))
    if path is not None:
        print(f"stored in {path}")
    else:
        print("nothing stored: " + ("a dry run" if is_better else "the values without tuning are as good"))
    return 0


class _Search:
    """Coordinate descent over the parameters of one device."""

    def __init__(self, device: Device, hal: Tunable, networks: Mapping[str, Network], rounds: int) -> None:
        self._device = device
        self._hal = hal
        self._networks = networks
        self._rounds = rounds
        random = np.random.default_rng(_SEED)
        self._inputs = {
            path: [random_input(info, random) for info in network.inputs] for path, network in networks.items()
        }

    def run(self, defaults: Mapping[str, int]) -> tuple[dict[str, int], list[Trial]]:
        """Return the best values, and all that was tried."""
        best = dict(defaults)
        trials: list[Trial] = []
        todo = [(one.name, value) for one in self._hal.tuning_parameters() for value in one.candidates]
        for at in progress("tuning", len(todo)):
            name, value = todo[at]
            if best[name] == value:
                continue
            ratio, kept, refusal = self._is_faster(best, {**best, name: value})
            trials.append(Trial(name, value, ratio, kept, refusal))
            if kept:
                best[name] = value
        return best, trials

    def gains(self, before: Mapping[str, int], after: Mapping[str, int]) -> list[Gain]:
        """Return what the values found do for each network."""
        found = []
        for path, inputs in self._inputs.items():
            with ExitStack() as stack:
                first, second = self._sessions(stack, path, before, after)
                found.append(Gain(Path(path).name, *_paired(first, second, inputs, self._rounds)))
        return found

    def _compare(self, best: Mapping[str, int], other: Mapping[str, int]) -> tuple[float, float, str]:
        """Return the time ratio and its upper quartile, means over the networks, and why the others are refused."""
        ratios, uppers = [], []
        for path in self._networks:
            with ExitStack() as stack:
                first, second = self._sessions(stack, path, best, other)
                refusal = _difference(first.run(self._inputs[path]), second.run(self._inputs[path]))
                if refusal:
                    return 1.0, 1.0, refusal
                *_, ratio, upper = _paired(first, second, self._inputs[path], self._rounds)
                ratios.append(ratio)
                uppers.append(upper)
        return statistics.geometric_mean(ratios), statistics.geometric_mean(uppers), ""

    def _is_faster(self, best: Mapping[str, int], other: Mapping[str, int]) -> tuple[float, bool, str]:
        """Return ratio, whether the other values are faster twice, and why they are refused."""
        ratio, upper, refusal = self._compare(best, other)
        if refusal or upper >= 1 - _LEAST_GAIN:
            return ratio, False, refusal
        again, upper, refusal = self._compare(best, other)
        return max(ratio, again), upper < 1 - _LEAST_GAIN, refusal

    def _sessions(
        self, stack: ExitStack, path: str, first: Mapping[str, int], second: Mapping[str, int]
    ) -> tuple[Session, Session]:
        sessions = []
        for values in (first, second):
            self._hal.set_tuning(values)
            sessions.append(stack.enter_context(self._networks[path].compile(self._device)))
        return sessions[0], sessions[1]


def _paired(first: Session, second: Session, inputs: list[Array], rounds: int) -> tuple[float, float, float, float]:
    """Return median times in ns of two sessions that run in turn, median and upper quartile of second to first."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        pair = (first, second) if turn % 2 == 0 else (second, first)
        medians = {id(session): _slice(session, inputs) for session in pair}
        times[0].append(medians[id(first)])
        times[1].append(medians[id(second)])
    ratios = [after / before for before, after in zip(*times, strict=True)]
    upper = float(np.percentile(ratios, _QUARTILE))
    return statistics.median(times[0]), statistics.median(times[1]), statistics.median(ratios), upper


def _slice(session: Session, inputs: list[Array]) -> float:
    """Return the median time in ns of runs over a slice, after one that does not count."""
    session.run(inputs)
    times: list[int] = []
    end = time.perf_counter() + _SLICE_SECONDS
    while not times or time.perf_counter() < end:
        start = time.perf_counter_ns()
        session.run(inputs)
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def _difference(first: Sequence[Array], second: Sequence[Array]) -> str:
    """Return how two answers differ; "" where they do not."""
    for at, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.dtype.kind == "f":
            if not np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE):
                return f"output {at} differs by {np.max(np.abs(np.subtract(one, other))):.1e}"
        elif not np.array_equal(one, other):
            return f"output {at} differs"
    return ""


def _lines(hal: Tunable, values: Mapping[str, int], trials: Sequence[Trial], gains: Sequence[Gain]) -> list[str]:
    header = ("parameter", "default", "found", "tried (time to the best so far)", "meaning")
    rows = []
    for one in hal.tuning_parameters():
        tried = " ".join(_trial_text(trial) for trial in trials if trial.parameter == one.name)
        rows.append((one.name, str(one.default), str(values[one.name]), tried, one.meaning))
    times = [
        (gain.network, duration_text(gain.before_ns), duration_text(gain.after_ns), f"{gain.ratio:.3f}")
        for gain in gains
    ]
    columns = ("network", "without tuning", "tuned", "ratio")
    return [*table(header, rows, ("default", "found")), "", *table(columns, times, columns[1:]), ""]


def _trial_text(trial: Trial) -> str:
    return f"{trial.value}: {'wrong' if trial.refusal else f'{trial.ratio:.3f}'}"

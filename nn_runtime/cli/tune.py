# SPDX-License-Identifier: Apache-2.0
"""Search for the numbers with which a device runs networks fastest, and store them for it.

Every value of every parameter is tried beside the best so far, in paired runs on all the networks given; what is
faster by more than 1 % in three quarters of them, twice, and slower on none, is kept. Answers must stay the same: to
the bit for 8-bit outputs, within 1e-4 for floats. The result is a file for this device and driver version, used by
every process from then on; it can be shared (--output), reviewed, and taken away again. NNRT_TUNING=FILE uses another
one, NNRT_TUNING=off none. Let nothing else run meanwhile: a network takes about a minute.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.cli.networks import add_device_argument, positive, random_input
from nn_runtime.cli.output import UsageError, check_folder, named_path, print_json, print_lines, progress, table
from nn_runtime.devices import DRIVER_HOST_VARIABLE, drivers_are_hosted, select
from nn_runtime.hal.tuning import Tunable
from nn_runtime.loading import load
from nn_runtime.reports import duration_text
from nn_runtime.value_classes import dataclass

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
_DIGITS = 4
"""Of a ratio, behind the point."""
_SEED = 0


@dataclass(frozen=True)
class Trial:
    """One value tried. ratio: time to that of the best values so far, under 1 is faster, as a mean of all networks.

    ratios: of each network. refusal: why it was refused, or "".
    """

    parameter: str
    value: int
    ratio: float
    kept: bool
    ratios: tuple[float, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class _Comparison:
    """Medians and upper quartiles of a time ratio by network; refusal: why the answers are wrong, or ""."""

    ratios: tuple[float, ...] = ()
    uppers: tuple[float, ...] = ()
    refusal: str = ""

    @property
    def ratio(self) -> float:
        """The mean of all networks."""
        return round(statistics.geometric_mean(self.ratios), _DIGITS) if self.ratios else 1.0

    @property
    def is_faster(self) -> bool:
        """Whether three quarters of the rounds were faster on the mean, and no network slower."""
        if self.refusal or max(self.ratios) > 1 + _LEAST_GAIN:
            return False
        return statistics.geometric_mean(self.uppers) < 1 - _LEAST_GAIN


@dataclass(frozen=True)
class Gain:
    """What tuning did for a network: medians of paired runs in ns, median and upper quartile of their ratios."""

    network: str
    before_ns: int
    after_ns: int
    ratio: float
    upper_ratio: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    parser.add_argument("models", metavar="MODEL", nargs="+", help=".tflite files")
    add_device_argument(parser)
    parser.add_argument("--rounds", metavar="N", type=positive, default=40,
                        help="paired slices of 0.02 s for every value and network (default: 40)")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="PATH", type=named_path,
                        help="write the result to a file or, under the device's name, into a folder")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="store nothing")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, times in ns")


def run(args: argparse.Namespace) -> int:
    """Search, print what was found, and store it."""
    if args.output is not None and args.dry_run:
        raise UsageError("--output and --dry-run: one of them")
    if args.output is not None and not args.output.is_dir():
        check_folder("--output", args.output)
    device = select(args.device).devices[0]
    hal = device.hal
    parameters = hal.tuning_parameters() if isinstance(hal, Tunable) else ()
    if not isinstance(hal, Tunable) or not parameters:
        raise UsageError(f"{device.name} has nothing to tune; {_what_can_be_tuned(device)}")
    with ExitStack() as stack:
        networks = {path: stack.enter_context(load(path)) for path in args.models}
        search = _Search(device, hal, networks, args.rounds, stack)
        in_force = hal.tuning()
        defaults = {one.name: one.default for one in parameters}
        try:
            values, trials = search.run(defaults)
            gains = search.gains(defaults, values)
        finally:
            hal.set_tuning(in_force)
    is_better = values != defaults and _is_better(gains)
    result = values if is_better else defaults
    path = None
    if args.output is not None or (result != in_force and not args.dry_run):
        measured = {"rounds": args.rounds, "gains": [*map(asdict, gains)], "trials": [*map(asdict, trials)]}
        path = hal.store_tuning(result, measured, args.output)
    if args.json:
        print_json({"device": device.name, "values": result, "gains": list(map(asdict, gains)),
                    "trials": list(map(asdict, trials)), "file": None if path is None else str(path)})  # fmt: skip
        return 0
    print_lines([f"{device.name}, {device.version}", "", *_lines(hal, values, trials, gains)])
    print_lines([_verdict(is_better, path, args.output is not None, args.dry_run)])
    return 0


def _what_can_be_tuned(device: Device) -> str:
    if drivers_are_hosted() and not device.is_reference:
        return f"a driver in a process of its own cannot be tuned: unset {DRIVER_HOST_VARIABLE}"
    return "--device takes another, such as opencl"


def _is_better(gains: Sequence[Gain]) -> bool:
    """Tell whether no network is slower, and one is faster in three quarters of the rounds."""
    return all(gain.ratio < 1 + _LEAST_GAIN for gain in gains) and any(gain.upper_ratio < 1 for gain in gains)


def _verdict(is_better: bool, path: Path | None, is_elsewhere: bool, is_dry: bool) -> str:
    """Return what was found, and what became of it."""
    found = "faster with the values found" if is_better else "the values without tuning are as good"
    if path is None:
        return f"{found}; nothing stored: " + ("a dry run" if is_dry else "they are in force")
    stored = "stored" if is_better else "those are stored"
    use = "NNRT_TUNING=FILE uses it" if is_elsewhere else "in force from the next process on"
    return f"{found}; {stored} in {path} ({use})"


class _Search:
    """Coordinate descent over the parameters of one device."""

    def __init__(
        self, device: Device, hal: Tunable, networks: Mapping[str, Network], rounds: int, stack: ExitStack
    ) -> None:
        self._stack = stack
        """Closes the sessions that serve several comparisons."""
        self._kept: dict[tuple[object, ...], Session] = {}
        """Of the best values so far, by network and values."""
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
            found, kept = self._is_faster(best, {**best, name: value})
            trials.append(Trial(name, value, found.ratio, kept, found.ratios, found.refusal))
            if kept:
                best[name] = value
        return best, trials

    def gains(self, before: Mapping[str, int], after: Mapping[str, int]) -> list[Gain]:
        """Return what the values found do for each network."""
        found = []
        paths = list(self._inputs)
        for at in progress("comparing", len(paths)):
            with ExitStack() as stack:
                first, second = (self._session(stack, paths[at], values) for values in (before, after))
                found.append(Gain(Path(paths[at]).name, *_paired(first, second, self._inputs[paths[at]], self._rounds)))
        return found

    def _is_faster(self, best: Mapping[str, int], other: Mapping[str, int]) -> tuple[_Comparison, bool]:
        """Return how other values compare, and whether they are faster twice: prepared anew, in other memory."""
        found = self._compare(best, other)
        return found, found.is_faster and self._compare(best, other, anew=True).is_faster

    def _compare(self, best: Mapping[str, int], other: Mapping[str, int], *, anew: bool = False) -> _Comparison:
        pairs = []
        for path, inputs in self._inputs.items():
            with ExitStack() as stack:
                first = self._session(stack, path, best) if anew else self._session_of_best(path, best)
                second = self._session(stack, path, other)
                refusal = _difference(first.run(inputs), second.run(inputs))
                if refusal:
                    return _Comparison(refusal=refusal)
                pairs.append(_paired(first, second, inputs, self._rounds)[2:])
        return _Comparison(*zip(*pairs, strict=True))

    def _session_of_best(self, path: str, best: Mapping[str, int]) -> Session:
        key = (path, *best.values())
        if key not in self._kept:
            self._kept[key] = self._session(self._stack, path, best)
        return self._kept[key]

    def _session(self, stack: ExitStack, path: str, values: Mapping[str, int]) -> Session:
        self._hal.set_tuning(values)
        return stack.enter_context(self._networks[path].compile(self._device))


def _paired(first: Session, second: Session, inputs: list[Array], rounds: int) -> tuple[int, int, float, float]:
    """Return median times in ns of two sessions that run in turn, median and upper quartile of second to first."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        pair = (first, second) if turn % 2 == 0 else (second, first)
        medians = {id(session): _slice(session, inputs) for session in pair}
        times[0].append(medians[id(first)])
        times[1].append(medians[id(second)])
    ratios = [after / before for before, after in zip(*times, strict=True)]
    upper = float(np.percentile(ratios, _QUARTILE))
    before, after = (round(statistics.median(one)) for one in times)
    return before, after, round(statistics.median(ratios), _DIGITS), round(upper, _DIGITS)


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
    header = ("parameter", "default", "found", "tried: time to the best so far (under 1: faster; * kept)")
    rows = []
    for one in hal.tuning_parameters():
        tried = ", ".join(_trial_text(trial) for trial in trials if trial.parameter == one.name)
        rows.append((one.name, str(one.default), str(values[one.name]), tried))
    meanings = [f"{one.name}: {one.meaning}" for one in hal.tuning_parameters()]
    times = [
        (
            gain.network,
            *map(duration_text, (gain.before_ns, gain.after_ns)),
            f"{gain.ratio:.3f}",
            f"{gain.upper_ratio:.3f}",
        )
        for gain in gains
    ]
    columns = ("network", "without tuning", "tuned", "ratio", "upper quartile")
    return [
        *table(header, rows, ("default", "found")), "", *meanings, "", *table(columns, times, columns[1:]), ""
    ]  # fmt: skip


def _trial_text(trial: Trial) -> str:
    return f"{trial.value}: {'wrong' if trial.refusal else f'{trial.ratio:.3f}'}{'*' if trial.kept else ''}"

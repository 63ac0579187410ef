# SPDX-License-Identifier: Apache-2.0
"""Run a network on files and show its answers.

An input is a picture (needs the extra `images`), a .npy or .npz array, or raw bytes (.bin, .dat, .raw); it is written
[NAME=]FILE[:KEY], NAME an input, KEY an array of an .npz. With several inputs, files are taken in their order; with
more files the network runs several times. Where --shape makes the only input several pictures, each run takes so many.

A picture is made RGB (or grey for one channel) of 8 bits, of 16 the upper ones, resized bilinearly to the input, and
its values of 0..255 become: uint8 as they are, int8 less 128, float (v - 127.5) / 127.5, which is -1..1. With
--normalize they become (v - MEAN) / STD, quantised by the input's own scale and zero point (0,255 gives 0..1; 0,1 gives
0..255).

A classifier's output is shown as its best classes, a map of class numbers as shares of the area, anything else as
statistics. The first run, marked so, is slower than those after it. --output keeps all of them as they are, in an .npz
by name, with the run's number behind the name where there are several.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.cli.inputs import Normalization, read_inputs
from nn_runtime.cli.networks import (
    add_network_arguments,
    compiled,
    loaded,
    missing_opencl_lines,
    places,
    places_text,
    positive,
    softmax_outputs,
)
from nn_runtime.cli.output import (
    UsageError,
    busy,
    check_folder,
    named_path,
    new_file,
    print_json,
    print_lines,
    progress,
    warn,
)
from nn_runtime.cli.results import Result, is_classifier, read_labels, summarize, summary_json, summary_lines
from nn_runtime.errors import BadData
from nn_runtime.hal.files import result_file
from nn_runtime.reports import duration_text
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nn_runtime.cli.inputs import Array
    from nn_runtime.session import Session


@dataclass(frozen=True)
class _Answer:
    """What is said of an input: results, and the time of the run that gave them, for so many at once."""

    name: str
    results: Sequence[Result]
    duration_ns: int
    is_first: bool
    at_once: int = 1

    @property
    def remark(self) -> str:
        """The time in words."""
        several = f" for {self.at_once} at once" if self.at_once > 1 else ""
        return f"{duration_text(self.duration_ns)}{several}{', first run' if self.is_first else ''}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    parser.usage = "%(prog)s MODEL [options] --input FILE [FILE ...]"  # --input would take a MODEL behind it
    add_network_arguments(parser)
    parser.add_argument("--input", metavar="FILE", nargs="+", action="extend", required=True,
                        help="picture, .npy, .npz or raw bytes, for each input in turn")  # fmt: skip
    parser.add_argument("--labels", metavar="FILE", type=named_path, help="names of the classes, one per line")
    parser.add_argument("--top", metavar="K", type=positive, default=5, help="classes to show (default: 5)")
    parser.add_argument("--normalize", metavar="MEAN,STD", type=normalization, default=None,
                        help="pictures' values v of 0..255 become (v - MEAN) / STD")  # fmt: skip
    parser.add_argument("--output", metavar="FILE.npz", type=new_file, help="keep the outputs by name")
    parser.add_argument("--json", action="store_true", help="print the answers as JSON")


def run(args: argparse.Namespace) -> int:
    """Run every case and print its answers."""
    if args.output:
        _check_output(args.output)
    labels = read_labels(args.labels) if args.labels else []
    started = time.perf_counter_ns()
    with busy("preparing"), loaded(args) as network:
        session = compiled(network, args)
        of_softmax = softmax_outputs(network)
    with session:
        ready_ns = time.perf_counter_ns() - started
        cases = read_inputs(args.input, session.inputs, args.normalize)
        each = len(args.input) // len(cases)
        files = [args.input[at * each : (at + 1) * each] for at in range(len(cases))]
        with _naming(files[0]):
            settled_ns = _settle(session, cases[0])
        ready_ns += settled_ns
        outputs, times_ns = _run_cases(session, cases, files)
        if args.output:
            _save(args.output, outputs)
        runs = [
            [
                Result(name, array, info.scale, info.zero_point, name in of_softmax)
                for (name, array), info in zip(case.items(), session.outputs, strict=True)
            ]
            for case in outputs
        ]
        answers = [
            answer
            for at, results in enumerate(runs)
            for answer in _answers(session, files[at], results, labels, times_ns[at], not at and not settled_ns)
        ]
        _warn_of_labels(answers[0].results, labels, args.labels)
        if args.json:
            print_json(_as_json(session, answers, labels, args.top, ready_ns))
        else:
            for answer in answers:
                print_lines([f"{answer.name}  ({answer.remark})"])
                print_lines(f"  {line}" for result in answer.results for line in _lines(result, labels, args.top))
            print_lines([f"{places_text(session.explain())}; ready after {duration_text(ready_ns)}"])
            print_lines(missing_opencl_lines(args.device))
    return 0


def _check_output(path: Path) -> None:
    """Check before the work that outputs can be kept there; what is no plain file may have any name; UsageError."""
    check_folder("--output", path)
    is_plain = (path.is_file() or not path.exists()) and Path("/dev") not in path.absolute().parents
    if is_plain and path.suffix.lower() != ".npz":
        raise UsageError(
            f"--output {path}: outputs are kept in an .npz: wanted a name with that ending, as {path.stem}.npz"
        )


def normalization(text: str) -> Normalization:
    """Return MEAN,STD as numbers."""
    try:
        mean, std = (float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"wanted two numbers MEAN,STD, got {text!r}") from error
    limits = np.finfo(np.float32)
    if not (abs(mean) <= limits.max and limits.tiny <= std <= limits.max):
        raise argparse.ArgumentTypeError(f"wanted numbers that float32 has, and STD > 0, got {text!r}")
    return Normalization(mean, std)


def _settle(session: Session, case: dict[str, Array]) -> int:
    """Let a first run choose among devices that may be as fast; return the time in ns that it took, which is no run's.

    0 where there is nothing to choose.
    """
    if not session.rivals:
        return 0
    start = time.perf_counter_ns()
    with busy("comparing devices"):
        session.run(case)
    return time.perf_counter_ns() - start


@contextlib.contextmanager
def _naming(files: Sequence[str]) -> Iterator[None]:
    """Have errors of arrays that do not fit say which files they are of."""
    try:
        yield
    except BadData as error:
        raise BadData(f"{' '.join(files)}: {error}") from error


def _run_cases(
    session: Session, cases: Sequence[dict[str, Array]], files: Sequence[Sequence[str]]
) -> tuple[list[dict[str, Array]], list[int]]:
    """Return outputs by name and the time of each run; every case begins with what the network keeps at first."""
    outputs = []
    times_ns = []
    for at in progress("running", len(cases)):
        session.reset_variables()
        start = time.perf_counter_ns()
        with _naming(files[at]):
            outputs.append(session.run(cases[at]))
        times_ns.append(time.perf_counter_ns() - start)
    return outputs, times_ns


def _lines(result: Result, labels: Sequence[str], top: int) -> list[str]:
    return list(summary_lines(result, summarize(result, labels, top)))


def _answers(
    session: Session,
    files: Sequence[str],
    results: Sequence[Result],
    labels: Sequence[str],
    time_ns: int,
    is_first: bool,
) -> list[_Answer]:
    """Return the answers of a run: one, or one for each picture or row of classes that it took at once."""
    whole = _Answer(" ".join(files), results, time_ns, is_first)
    batches = {info.shape[0] if info.shape else 0 for info in session.inputs}
    count = batches.pop() if len(batches) == 1 else 1
    if count < 2 or any(result.values.ndim == 0 or len(result.values) != count for result in results):
        return [whole]
    rows = [[replace(result, values=result.values[at : at + 1]) for result in results] for at in range(count)]
    are_pictures = len(files) == count and len(session.inputs) == 1
    if not are_pictures and not any(is_classifier(result, labels) for result in rows[0]):
        return [whole]
    names = files if are_pictures else [f"{whole.name}[{at}]" for at in range(count)]
    return [_Answer(name, row, time_ns, is_first, count) for name, row in zip(names, rows, strict=True)]


def _save(path: Path, outputs: Sequence[dict[str, Array]]) -> None:
    """Write outputs by name, any name, as an .npz; of several cases with the case's number behind the name."""
    several = len(outputs) > 1
    named = {
        f"{name}_{case}" if several else name: array
        for case, arrays in enumerate(outputs)
        for name, array in arrays.items()
    }
    with result_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in named.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _warn_of_labels(results: Sequence[Result], labels: Sequence[str], file: Path) -> None:
    rows = [r.values.size for r in results if r.values.ndim and r.values.shape[-1] == r.values.size > 1]
    if labels and rows and len(labels) not in rows:
        warn(f"{file} has {len(labels)} labels, the output {rows[0]} classes: the names may be shifted")


def _as_json(
    session: Session, answers: Sequence[_Answer], labels: Sequence[str], top: int, ready_ns: int
) -> dict[str, object]:
    return {
        "devices": {place.device: place.operations for place in places(session.explain())},
        "ready_ns": ready_ns,
        "cases": [
            {
                "input": answer.name,
                "duration_ns": answer.duration_ns,
                "at_once": answer.at_once,
                "first_run": answer.is_first,
                "outputs": [summary_json(result, summarize(result, labels, top)) for result in answer.results],
            }
            for answer in answers
        ],
    }

# SPDX-License-Identifier: Apache-2.0
"""Classify handwritten digits: real scans that the two networks have not seen in training.

Runs a float and an 8-bit convolutional network over all held-back scans of the UCI digits set, and shows a few of the
scans with the answers, the accuracy, where each operation ran, and the times on the device and in the driver.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nn_runtime.cli.networks import add_device_argument, compile_for_timing, missing_opencl_lines, places_text
from nn_runtime.cli.output import busy, print_json, print_lines, progress, table, wrapped
from nn_runtime.loading import load
from nn_runtime.reports import duration_text
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from nn_runtime.cli.inputs import Array
    from nn_runtime.reports import Explanation
    from nn_runtime.session import Session

_FOLDER = "demo"
_NETWORKS = {"float": "digits_float.tflite", "8-bit": "digits_int8.tflite"}
_SCANS = "digits_test.npz"
_MOST_INK = 16
_SHOWN = 5
_MOST_MISTAKES = 8
_SHADES = " ░▒▓█"
_ASCII_SHADES = " .:*#"
_PARTITION = "aosp"
"""By capabilities, so that the OpenCL device is shown, whatever estimates say of networks as small as these."""


@dataclass(frozen=True)
class Scans:
    """Held-back scans: images [count, 8, 8] with ink of 0 to 16, and the digit that each shows."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    source: str
    licence: str


@dataclass(frozen=True)
class Outcome:
    """One network over all scans; times are medians in ns, None where the driver does not know."""

    name: str
    answers: npt.NDArray[np.int64]
    correct: int
    on_device_ns: float | None
    in_driver_ns: float | None
    wall_ns: float
    explanation: Explanation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    add_device_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Classify, and print what came out."""
    scans = load_scans()
    outcomes = [_classify(name, file, scans, args.device) for name, file in _NETWORKS.items()]
    if args.json:
        print_json(_as_json(scans, outcomes))
        return 0
    print_lines([f"{len(scans.labels)} scans of handwritten digits that the networks have not seen before", ""])
    print_lines([*pictures(scans, outcomes[0].answers), ""])
    print_lines(_outcome_table(scans, outcomes))
    for outcome in outcomes:
        print_lines(["", *_mistake_lines(scans, outcome), *_where_lines(outcome)])
    missing = missing_opencl_lines(args.device)
    print_lines(["", *missing] if missing else [])
    print_lines(["", *wrapped(f"scans: {scans.source}", 7), *wrapped(f"licence: {scans.licence}", 9)])
    return 0


def load_scans() -> Scans:
    """Return the scans that come with the package."""
    with (resources.files("nn_runtime") / _FOLDER / _SCANS).open("rb") as file, np.load(file) as archive:
        return Scans(archive["images"], archive["labels"], str(archive["source"]), str(archive["licence"]))


def _classify(name: str, file: str, scans: Scans, selector: str | None) -> Outcome:
    content = (resources.files("nn_runtime") / _FOLDER / file).read_bytes()
    with busy(f"preparing the {name} network"), load(content) as network:
        session, has_clock = compile_for_timing(network, selector, _PARTITION)
    with session:
        return _run_all(name, session, network_input(scans.images, session.inputs[0].dtype), scans, has_clock)


def network_input(images: npt.NDArray[np.uint8], dtype: np.dtype[np.generic]) -> Array:
    """Return the scans as a network takes them, [count, 8, 8, 1]: ink of 0 to 1 as floats, else 0 to 16."""
    values: Array = (images / _MOST_INK if dtype.kind == "f" else images).astype(dtype)
    return values[..., np.newaxis]


def _run_all(name: str, session: Session, scans_in: Array, scans: Scans, has_clock: bool) -> Outcome:
    answers = np.zeros(len(scans_in), np.int64)
    on_device: list[int] = []
    in_driver: list[int] = []
    wall: list[int] = []
    for at in progress(f"{name} network", len(scans_in)):
        start = time.perf_counter_ns()
        (scores,) = session.run([scans_in[at : at + 1]], measure=has_clock)
        wall.append(time.perf_counter_ns() - start)
        answers[at] = np.argmax(scores)
        timing = session.timing
        if timing is not None and timing.on_device_ns is not None:
            on_device.append(timing.on_device_ns)
        if timing is not None and timing.in_driver_ns is not None:
            in_driver.append(timing.in_driver_ns)
    correct = int(np.count_nonzero(answers == scans.labels))
    return Outcome(
        name, answers, correct, _median(on_device), _median(in_driver), float(np.median(wall)), session.explain()
    )


def _median(times_ns: Sequence[int]) -> float | None:
    return float(np.median(times_ns)) if times_ns else None


def pictures(scans: Scans, answers: npt.NDArray[np.int64]) -> list[str]:
    """Return the first scans side by side as text, two columns a pixel, with the answers below."""
    shades = _shades()
    gap = " " * 3
    chosen = range(min(_SHOWN, len(answers)))
    rows = [
        gap.join(_pixel_row(scans.images[at, row], shades) for at in chosen).rstrip()
        for row in range(scans.images.shape[1])
    ]
    width = 2 * scans.images.shape[2]
    captions = gap.join(_caption(int(answers[at]), int(scans.labels[at])).ljust(width) for at in chosen)
    return [*rows, captions.rstrip()]


def _pixel_row(row: npt.NDArray[np.uint8], shades: str) -> str:
    levels = np.minimum(row.astype(np.int64) * len(shades) // (_MOST_INK + 1), len(shades) - 1)
    return "".join(shades[level] * 2 for level in levels)


def _shades() -> str:
    """Return blocks where the terminal's encoding has them, else letters."""
    try:
        _SHADES.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _ASCII_SHADES
    return _SHADES


def _caption(answer: int, label: int) -> str:
    return f"answer {answer}" if answer == label else f"answer {answer}, is {label}"


def _outcome_table(scans: Scans, outcomes: Sequence[Outcome]) -> list[str]:
    header = ("network", "correct", "accuracy", "on device", "in driver", "wall time")
    rows = [
        (
            outcome.name, f"{outcome.correct} of {len(scans.labels)}", f"{outcome.correct / len(scans.labels):.1%}",
            duration_text(outcome.on_device_ns), duration_text(outcome.in_driver_ns), duration_text(outcome.wall_ns),
        )
        for outcome in outcomes
    ]  # fmt: skip
    return table(header, rows, right=header[1:])


def _mistake_lines(scans: Scans, outcome: Outcome) -> list[str]:
    wrong = np.flatnonzero(outcome.answers != scans.labels)
    if not wrong.size:
        return [f"{outcome.name} network: no mistake"]
    listed = [f"{scans.labels[at]} taken for {outcome.answers[at]}" for at in wrong[:_MOST_MISTAKES]]
    more = f" and {wrong.size - _MOST_MISTAKES} more" if wrong.size > _MOST_MISTAKES else ""
    return [f"{outcome.name} network: {', '.join(listed)}{more}"]


def _where_lines(outcome: Outcome) -> list[str]:
    """Return which operations ran where."""
    lines = [f"  {places_text(outcome.explanation)}"]
    by_device: dict[str, list[str]] = {}
    for row in outcome.explanation.operations:
        by_device.setdefault(row.device, []).append(row.name)
    for device, names in by_device.items():
        lines += wrapped(f"  {device}: {', '.join(names)}", 4)
    return lines


def _as_json(scans: Scans, outcomes: Sequence[Outcome]) -> dict[str, object]:
    return {
        "scans": len(scans.labels),
        "source": scans.source,
        "licence": scans.licence,
        "networks": [
            {
                "name": outcome.name,
                "correct": outcome.correct,
                "accuracy": outcome.correct / len(scans.labels),
                "on_device_ns": outcome.on_device_ns,
                "in_driver_ns": outcome.in_driver_ns,
                "wall_ns": outcome.wall_ns,
                "operations": [
                    {**asdict(row), "refusals": dict(row.refusals)} for row in outcome.explanation.operations
                ],
            }
            for outcome in outcomes
        ],
    }

# SPDX-License-Identifier: Apache-2.0
"""Outputs of a network as people read them: classes with probabilities, areas of a class map, or statistics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nn_runtime.cli.output import table
from nn_runtime.errors import BadData
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nn_runtime.cli.inputs import Array

MOST_MAP_CLASSES = 1024
"""An integer output with more distinct values than this is no map of classes."""
_FEW_VALUES = 8
_SUM_TOLERANCE = 0.05
"""How far the sum of probabilities may be from 1."""
_MOST_LOST = 0.25
"""How far that of many quantised ones may be, each of which is rounded: most of a thousand classes become 0."""


@dataclass(frozen=True)
class Result:
    """An output: its name, values as the network gives them, and the quantisation (scale 0: none).

    is_softmax: whether the network makes them by SOFTMAX.
    """

    name: str
    values: Array
    scale: float
    zero_point: int
    is_softmax: bool = False

    def real(self) -> npt.NDArray[np.float64]:
        """Return the values that the numbers stand for."""
        wide = self.values.astype(np.float64)
        return (wide - self.zero_point) * self.scale if self.scale else wide


@dataclass(frozen=True)
class Ranked:
    """A class of a classifier and its value: a probability, or a score without bounds."""

    index: int
    label: str
    value: float


@dataclass(frozen=True)
class Area:
    """A class of a class map, and how much of the map it has."""

    index: int
    label: str
    pixels: int
    share: float


@dataclass(frozen=True)
class Statistics:
    """Figures of any output, in real values; None where there are no values or none that are finite."""

    minimum: float | None
    maximum: float | None
    mean: float | None
    deviation: float | None
    not_finite: int
    values: tuple[float, ...]
    """All of them where they are few."""


Summary = tuple[Ranked, ...] | tuple[Area, ...] | Statistics


def read_labels(path: Path) -> list[str]:
    """Return one label per line; raises BadData for a file that is not text."""
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise BadData(f"{path}: not a text of labels, one per line: {error}") from error


def summarize(result: Result, labels: Sequence[str], top: int) -> Summary:
    """Return what an output most likely means; labels name the classes of a classifier or a class map."""
    values = result.values
    if is_classifier(result, labels):
        real = result.real().reshape(-1)
        best = np.argsort(-real, kind="stable")[:top]
        return tuple(Ranked(int(i), label_of(int(i), labels), float(real[i])) for i in best)
    if is_class_map(result):
        indices, counts = np.unique(values, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return tuple(
            Area(int(indices[i]), label_of(int(indices[i]), labels), int(counts[i]), float(counts[i] / values.size))
            for i in order[:top]
        )
    return _statistics(result)


def label_of(index: int, labels: Sequence[str]) -> str:
    """Return the label of a class; empty where there is none."""
    return labels[index] if 0 <= index < len(labels) else ""


def is_classifier(result: Result, labels: Sequence[str]) -> bool:
    """Tell whether an output ranks classes: one row of labelled values, or of probabilities."""
    values = result.values
    if values.dtype.kind not in "fiu" or values.ndim == 0 or values.size < 2 or values.shape[-1] != values.size:
        return False
    return len(labels) == values.size or (are_probabilities(result) and values.size > 1)


def are_probabilities(result: Result) -> bool:
    """Tell whether SOFTMAX made the values, or they look so: at least 0, with a sum of 1 but for their quantisation."""
    if result.is_softmax:
        return True
    real = result.real()
    rounded_away = min(_MOST_LOST, real.size * result.scale / 2)
    return bool(real.min() >= 0 and abs(real.sum() - 1) <= max(_SUM_TOLERANCE, rounded_away))


def is_class_map(result: Result) -> bool:
    """Tell whether an output holds a class number per pixel: integers without scale, with height and width."""
    values = result.values
    if values.dtype.kind not in "iu" or result.scale or np.squeeze(values).ndim < 2:
        return False
    numbers = values.astype(np.int64)
    return bool(numbers.min() >= 0 and numbers.max() < MOST_MAP_CLASSES)


def _statistics(result: Result) -> Statistics:
    real = result.real().reshape(-1)
    finite = real[np.isfinite(real)]
    values = tuple(float(value) for value in real) if real.size <= _FEW_VALUES else ()
    if not finite.size:
        return Statistics(None, None, None, None, int(real.size), values)
    return Statistics(
        float(finite.min()), float(finite.max()), float(finite.mean()), float(finite.std()),
        int(real.size - finite.size), values,
    )  # fmt: skip


def summary_lines(result: Result, summary: Summary) -> list[str]:
    """Return the lines for one output."""
    shape = "x".join(str(size) for size in result.values.shape) or "scalar"
    title = f"{result.name}  {result.values.dtype} {shape}"
    if isinstance(summary, Statistics):
        return [title, *_statistics_lines(summary)]
    if summary and isinstance(summary[0], Area):
        areas = [(f"{a.share:.2%}", str(a.pixels), str(a.index), a.label) for a in summary if isinstance(a, Area)]
        return [title, *_indented(table(("share", "pixels", "class", ""), areas, ("share", "pixels", "class")))]
    heading, show = ("probability", _percent) if are_probabilities(result) else ("score", _number)
    ranks = [(show(r.value), str(r.index), r.label) for r in summary if isinstance(r, Ranked)]
    return [title, *_indented(table((heading, "class", ""), ranks, (heading, "class")))]


def _statistics_lines(summary: Statistics) -> list[str]:
    if summary.values:
        return [f"  {' '.join(_number(value) for value in summary.values)}"]
    bad = f", {summary.not_finite} not finite" if summary.not_finite else ""
    if summary.minimum is None or summary.maximum is None or summary.mean is None or summary.deviation is None:
        return ["  no values" if not bad else f"  nothing but {summary.not_finite} values that are not finite"]
    figures = (summary.minimum, summary.maximum, summary.mean, summary.deviation)
    names = ("min", "max", "mean", "std")
    return ["  " + ", ".join(f"{name} {_number(value)}" for name, value in zip(names, figures, strict=True)) + bad]


def summary_json(result: Result, summary: Summary) -> dict[str, object]:
    """Return one output as plain values."""
    head: dict[str, object] = {
        "name": result.name, "dtype": str(result.values.dtype), "shape": list(result.values.shape),
    }  # fmt: skip
    if isinstance(summary, Statistics):
        return {**head, "statistics": asdict(summary)}
    key = "areas" if summary and isinstance(summary[0], Area) else "top"
    return {**head, key: [asdict(item) for item in summary]}


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _percent(value: float) -> str:
    return f"{value:.2%}"


def _number(value: float) -> str:
    return f"{value:.6g}"

# SPDX-License-Identifier: Apache-2.0
"""What a trace says: its times by layer and phase, and by kernel."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from nn_runtime.observe.trace import KERNEL, ROWS, ROWS_PER_THREAD
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LAYERS = {"LA": "application", "LR": "runtime", "LU": "utility", "LI": "IPC", "LD": "driver", "LC": "CPU"}
_PHASES = {
    "PO": "overall", "PWU": "warm-up", "PBM": "benchmark", "PI": "initialization", "PP": "preparation",
    "PC": "compilation", "PE": "execution", "PT": "termination", "PU": "unspecified", "PIO": "inputs and outputs",
    "PTR": "transformation", "PCO": "computation", "PR": "results",
}  # fmt: skip
_NAME = re.compile(r"\[NN_(\w+?)_(\w+)\](.*)", re.DOTALL)


@dataclass(frozen=True)
class Span:
    """Something that a thread did, from `start_us` to `end_us`."""

    thread: tuple[int, int]
    layer: str
    phase: str
    detail: str
    start_us: float
    end_us: float


@dataclass(frozen=True)
class PhaseSummary:
    """Time of one layer in one phase; `own_ns` is what is spent in nothing else that the same thread traced within."""

    layer: str
    phase: str
    count: int
    total_ns: int
    own_ns: int


@dataclass(frozen=True)
class KernelSummary:
    """Time of all launches of one kernel, or of all transfers in one direction."""

    kernel: str
    count: int
    total_ns: int


def read_spans(path: Path) -> list[Span]:
    """Return the spans of a trace file in the order that they stand there; raises OSError, ValueError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or "traceEvents" not in content:
            raise ValueError("no trace in Chrome's format: wanted an object with traceEvents")
        events = [event for event in content["traceEvents"] if event["ph"] == "X"]
        return [span for event in events if (span := _span(event)) is not None]
    except KeyError as error:
        raise ValueError(f"no trace in Chrome's format: an event has no {error}") from error
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no trace in Chrome's format: {type(error).__name__}: {error}") from error


def summary(spans: Sequence[Span]) -> list[PhaseSummary]:
    """Return the times by layer and phase, the longest first."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for span, own_us in zip(spans, _own_times(spans), strict=True):
        found[span.layer, span.phase].append((span.end_us - span.start_us, own_us))
    rows = [
        PhaseSummary(*key, len(times), _ns(sum(total for total, _ in times)), _ns(sum(own for _, own in times)))
        for key, times in found.items()
    ]
    return sorted(rows, key=lambda row: -row.total_ns)


def summary_of_kernels(spans: Sequence[Span]) -> list[KernelSummary]:
    """Return the times by kernel, the longest first."""
    found: dict[str, list[float]] = defaultdict(list)
    for span in spans:
        if span.layer == ROWS[KERNEL]:
            found[span.detail].append(span.end_us - span.start_us)
    rows = [KernelSummary(kernel, len(times), _ns(sum(times))) for kernel, times in found.items()]
    return sorted(rows, key=lambda row: -row.total_ns)


def _span(event: dict[str, object]) -> Span | None:
    """Return an event of a stack like ours; None for another's."""
    match = _NAME.fullmatch(str(event["name"]))
    if match is None:
        return None
    layer, phase, detail = match.groups()
    named = ROWS[KERNEL] if event["cat"] == ROWS[KERNEL] else _LAYERS.get(layer, layer)
    start_us, length_us = _number(event, "ts"), _number(event, "dur")
    thread = int(_number(event, "pid")), int(_number(event, "tid")) // ROWS_PER_THREAD
    return Span(thread, named, _PHASES.get(phase, phase), detail, start_us, start_us + length_us)


def _number(event: dict[str, object], key: str) -> float:
    value = event[key]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError(f"{key} is {value!r}")
    return value


def _ns(time_us: float) -> int:
    return round(time_us * 1e3)


def _own_times(spans: Sequence[Span]) -> list[float]:
    """Return of each span the time that no span directly within it covers, whatever row of its thread that is on."""
    own = [span.end_us - span.start_us for span in spans]
    order = sorted(range(len(spans)), key=lambda i: (spans[i].thread, spans[i].start_us, -spans[i].end_us))
    around: list[int] = []
    for at in order:
        while around and not _is_within(spans[at], spans[around[-1]]):
            around.pop()
        if around:
            own[around[-1]] -= spans[at].end_us - spans[at].start_us
        around.append(at)
    return own


def _is_within(inner: Span, outer: Span) -> bool:
    return inner.thread == outer.thread and outer.start_us <= inner.start_us and inner.end_us <= outer.end_us

# SPDX-License-Identifier: Apache-2.0
"""Traces: NNRT_TRACE=file.json writes what runtime, drivers and kernels did, on one time axis, in Chrome's format.

Names are those of the NNAPI's systraces, `[NN_<layer>_<phase>]detail` (SURFACE section l). The file is written when the
program ends, or at `stop`; a worker process adds its number to the name. While a trace is on, drivers that can report
their kernels are asked to, which costs time.
"""

from __future__ import annotations

import atexit
import json
import logging
import multiprocessing
import os
import re
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nn_runtime.hal.interfaces import ExecutionProfile

VARIABLE = "NNRT_TRACE"
RUNTIME = "LR"
DRIVER = "LD"
KERNEL = "kernel"

_ROWS = {RUNTIME: "runtime", DRIVER: "driver", KERNEL: "kernel"}
_LAYERS = {"LA": "application", "LR": "runtime", "LU": "utility", "LI": "IPC", "LD": "driver", "LC": "CPU"}
_PHASES = {
    "PO": "overall", "PWU": "warm-up", "PBM": "benchmark", "PI": "initialization", "PP": "preparation",
    "PC": "compilation", "PE": "execution", "PT": "termination", "PU": "unspecified", "PIO": "inputs and outputs",
    "PTR": "transformation", "PCO": "computation", "PR": "results",
}  # fmt: skip
_NAME = re.compile(r"\[NN_(\w+?)_(\w+)\](.*)", re.DOTALL)


_log = logging.getLogger("nn_runtime")


class TraceEvent(TypedDict, total=False):
    """One event as Chrome wants it; times are microseconds."""

    name: str
    cat: str
    ph: str
    pid: int
    tid: int
    ts: float
    dur: float
    args: dict[str, object]


@dataclass(frozen=True)
class TraceSummary:
    """Time of one layer in one phase; `own_ns` is what is spent in nothing else that the same thread traced within."""

    layer: str
    phase: str
    count: int
    total_ns: int
    own_ns: int


class Tracer:
    """Collects events and writes them as one file."""

    def __init__(self, path: Path) -> None:
        """Nothing is written before `write`."""
        self.path = path
        self.events: list[TraceEvent] = []
        self._rows: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def add(self, layer: str, phase: str, detail: str, start_ns: int, end_ns: int, **args: object) -> None:
        """Add a span of the calling thread, in `time.perf_counter_ns` times; `layer` is its row too."""
        named = DRIVER if layer == KERNEL else layer
        self.events.append(
            {
                "name": f"[NN_{named}_{phase}]{detail}",
                "cat": _ROWS[layer],
                "ph": "X",
                "pid": os.getpid(),
                "tid": self._row(layer),
                "ts": start_ns / 1e3,
                "dur": (end_ns - start_ns) / 1e3,
                "args": args,
            }
        )

    def add_execution(
        self, device: str, operations: Sequence[int], start_ns: int, end_ns: int, rows: ExecutionProfile | None
    ) -> None:
        """Add a driver's execution and its kernels; the operations of the rows are indices into `operations`."""
        self.add(DRIVER, "PE", device, start_ns, end_ns, operations=len(operations))
        for row in rows.rows if rows is not None else ():
            self.add(
                KERNEL,
                "PCO" if row.operations else "PIO",
                row.kernel,
                start_ns + row.start_ns,
                start_ns + row.end_ns,
                operations=[operations[at] for at in row.operations],
                bytes=row.bytes_moved,
                flops=row.flops,
            )

    def write(self) -> None:
        """Write the file."""
        names: list[TraceEvent] = [
            {"name": "thread_name", "ph": "M", "pid": os.getpid(), "tid": row, "args": {"name": _ROWS[layer]}}
            for (layer, _), row in self._rows.items()
        ]
        self.path.write_text(json.dumps({"traceEvents": [*names, *self.events], "displayTimeUnit": "ns"}))

    def _row(self, layer: str) -> int:
        key = layer, threading.get_ident()
        row = self._rows.get(key)
        if row is None:
            with self._lock:
                row = self._rows.setdefault(key, len(self._rows) + 1)
        return row


current: Tracer | None = None
"""Where events go; None while nothing is traced."""

_read = ""


def read_setting() -> None:
    """Start or stop tracing as NNRT_TRACE says now; called when a model is created."""
    global _read
    path = os.environ.get(VARIABLE, "")
    if path == _read:
        return
    _read = path
    stop()
    if path:
        is_child = multiprocessing.parent_process() is not None
        start(Path(f"{path}.{os.getpid()}" if is_child else path))


def start(path: Path) -> Tracer:
    """Trace from now on into a file."""
    global current
    stop()
    current = Tracer(path)
    return current


def stop() -> None:
    """Stop tracing and write the file; where that is not possible, say so and go on."""
    global current
    if current is None:
        return
    tracer, current = current, None
    try:
        tracer.write()
    except OSError as error:
        _log.error("%s: the trace cannot be written: %s", tracer.path, error.strerror or error)


atexit.register(stop)


def summary(path: Path) -> list[TraceSummary]:
    """Return the times of a trace by layer and phase, the longest first; raises OSError, ValueError."""
    events: list[TraceEvent] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and _NAME.match(event["name"])]
    own = _own_times(spans)
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for at, event in enumerate(spans):
        match = _NAME.match(event["name"])
        if match is not None:
            layer = "kernel" if event["cat"] == KERNEL else _LAYERS.get(match[1], match[1])
            found[layer, _PHASES.get(match[2], match[2])].append((event["dur"], own[at]))
    rows = [
        TraceSummary(layer, phase, len(times), _ns(total for total, _ in times), _ns(mine for _, mine in times))
        for (layer, phase), times in found.items()
    ]
    return sorted(rows, key=lambda row: -row.total_ns)


def _ns(times_us: Iterable[float]) -> int:
    return round(sum(times_us) * 1e3)


def _own_times(spans: Sequence[TraceEvent]) -> list[float]:
    """Return of each span the time that no span directly within it covers, whatever row that one is on."""
    order = sorted(range(len(spans)), key=lambda i: (spans[i]["ts"], -spans[i]["dur"]))
    own = [span["dur"] for span in spans]
    open_spans: list[int] = []
    for at in order:
        start_us, end_us = spans[at]["ts"], spans[at]["ts"] + spans[at]["dur"]
        while open_spans and spans[open_spans[-1]]["ts"] + spans[open_spans[-1]]["dur"] < end_us:
            open_spans.pop()
        if open_spans and start_us < spans[open_spans[-1]]["ts"] + spans[open_spans[-1]]["dur"]:
            own[open_spans[-1]] -= spans[at]["dur"]
        open_spans.append(at)
    return own

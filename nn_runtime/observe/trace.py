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
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.hal.interfaces import ExecutionProfile

VARIABLE = "NNRT_TRACE"
RUNTIME = "LR"
DRIVER = "LD"
KERNEL = "kernel"

ROWS = {RUNTIME: "runtime", DRIVER: "driver", KERNEL: "kernel"}
"""Names of the rows of a thread, top to bottom."""
ROWS_PER_THREAD = 10
"""The number of a row is that of its thread times this, and its place among the thread's rows."""

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


class Tracer:
    """Collects events and writes them as one file."""

    def __init__(self, path: Path) -> None:
        """Nothing is written before `write`."""
        self.path = path
        self._process = os.getpid()
        self.events: list[TraceEvent] = []
        self._threads: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(self, layer: str, phase: str, detail: str, start_ns: int, end_ns: int, **args: object) -> None:
        """Add a span of the calling thread, in `time.perf_counter_ns` times; `layer` is its row too."""
        named = DRIVER if layer == KERNEL else layer
        self.events.append(
            {
                "name": f"[NN_{named}_{phase}]{detail}",
                "cat": ROWS[layer],
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
                bytes=int(row.bytes_moved),  # drivers count by numpy, too
                flops=int(row.flops),
            )

    def write(self) -> None:
        """Write the file; a process forked while it was traced writes one of its own, where it did anything."""
        is_forked = os.getpid() != self._process
        if is_forked and not self.events:
            return
        layers = {event["tid"]: event["cat"] for event in list(self.events)}
        rows: list[TraceEvent] = [_metadata("process_name", 0, name=f"nn_runtime {os.getpid()}")]
        for row, layer in sorted(layers.items()):
            thread = row // ROWS_PER_THREAD
            rows.append(_metadata("thread_name", row, name=layer if thread == 1 else f"{layer}, thread {thread}"))
            rows.append(_metadata("thread_sort_index", row, sort_index=row))
        path = Path(f"{self.path}.{os.getpid()}") if is_forked else self.path
        from nn_runtime.hal.files import result_file  # nothing that is only read needs it

        with result_file(path) as file:
            file.write(json.dumps({"traceEvents": [*rows, *self.events], "displayTimeUnit": "ns"}).encode())

    def leave_to_parent(self) -> None:
        """Forget, in a forked process, what the one before it writes."""
        self.events, self._threads = [], {}
        self._lock = threading.Lock()  # a thread that stayed behind may hold the other

    def _row(self, layer: str) -> int:
        identity = threading.get_ident()
        thread = self._threads.get(identity)
        if thread is None:
            with self._lock:
                thread = self._threads.setdefault(identity, len(self._threads) + 1)
        return thread * ROWS_PER_THREAD + list(ROWS).index(layer)


def _metadata(what: str, row: int, **args: object) -> TraceEvent:
    return {"name": what, "ph": "M", "pid": os.getpid(), "tid": row, "args": args}


current: Tracer | None = None
"""Where events go; None while nothing is traced."""

_read = ""


def read_setting() -> None:
    """Start or stop tracing as NNRT_TRACE says now; called when a model is created.

    A file that cannot be written is said now, before the work, and nothing is traced.
    """
    global _read
    path = os.environ.get(VARIABLE, "")
    if path == _read:
        return
    _read = path
    stop()
    if path:
        import multiprocessing

        from nn_runtime.hal.files import why_unwritable_file

        is_child = multiprocessing.parent_process() is not None
        target = Path(f"{path}.{os.getpid()}" if is_child else path)
        reason = why_unwritable_file(target)
        if reason is None:
            start(target)
        else:
            _log.error("%s: no trace, %s cannot be written: %s", VARIABLE, target, reason)


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


def _after_fork() -> None:
    if current is not None:
        current.leave_to_parent()


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

# SPDX-License-Identifier: Apache-2.0
"""One engine in a process of its own, so that engines share neither threads nor OpenCL; the parent's side too.

The child (`python worker.py ENGINE`) takes one JSON line per command on standard input and answers by one line: files
with a network and with its inputs, to load that and to write its first answer into a third file; or how long to run it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import IO

    from engines import Array, Run

UNCOUNTED, UNCOUNTED_SECONDS = 3, 0.02
"""Runs at the start of a slice, while caches and threads wake."""
LEAST_COUNTED = 2
PROBES = 4
_SETTLE_SECONDS = 0.004
"""After a slice: peers' threads spin for a while when they have nothing to do."""


class Worker:
    """The parent's side. `problem` says why the engine does not work with this network, "" if it does."""

    def __init__(self, engine: str, model: Path, data: Path) -> None:
        """Start the engine on a file with a network and one (.npz) with its inputs, and wait for the first answer."""
        self.engine = engine
        self._process = self._started()
        self.load(model, data)

    def load(self, model: Path, data: Path) -> None:
        """Take another network in place of this one and wait for its first answer; start anew what has ended."""
        if self._process.poll() is not None:
            self._process = self._started()
        output = data.with_name("output.npy")
        first = self._ask({"model": str(model), "data": str(data), "output": str(output)})
        first = first or {"problem": "the process ended"}
        self.problem: str = first.get("problem", "")
        self.first_seconds: float = first.get("first_seconds", 0.0)
        self.output: Array = np.array([]) if self.problem else np.load(output)

    def slice(self, seconds: float) -> list[float]:
        """Run for that long; return the milliseconds of every run."""
        answer = self._ask({"seconds": seconds})
        if answer is None:
            raise RuntimeError(f"{self.engine} ended in the middle")
        time.sleep(_SETTLE_SECONDS)
        times: list[float] = answer["times"]
        return times

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__)), self.engine],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def _ask(self, command: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer, None where the process has ended."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("no pipe")
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    """Serve one engine."""
    engine = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    network: tuple[Run, list[Array]] | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if network is not None and "seconds" in command:
            _send(answers, {"times": timed(*network, command["seconds"], engine)})
            continue
        network = None  # its memory goes before the next one comes
        try:
            network, seconds = _loaded(engine, command["model"], command["data"], command["output"])
            _send(answers, {"first_seconds": seconds})
        except Exception as error:
            message = next(iter(str(error).strip().splitlines()), "")
            _send(answers, {"problem": f"{type(error).__name__}: {message}"[:200]})


def _loaded(engine: str, model: str, inputs: str, output: str) -> tuple[tuple[Run, list[Array]], float]:
    """Load a network, write its first answer, and return it, its inputs and how many seconds that took."""
    with np.load(inputs) as arrays:
        data = list(arrays.values())
    load = _loader_of(engine)
    start = time.perf_counter()
    run = load(Path(model).read_bytes())
    answer = np.asarray(run(data))
    seconds = time.perf_counter() - start
    np.save(output, answer)
    return (run, data), seconds


def _loader_of(engine: str) -> Callable[[bytes], Run]:
    """Return the loader of an engine, or of one on a GPU."""
    from engines import LOADERS

    if engine in LOADERS:
        return LOADERS[engine]
    from gpu_engines import loader_of

    return loader_of(engine)


def timed(run: Run, data: list[Array], seconds: float, engine: str) -> list[float]:
    """Return the times of runs in ms; of the probe, its result."""
    if engine.startswith("distance"):
        return [found for _ in range(PROBES) if (found := float(np.asarray(run(data))[0]))]
    end = time.perf_counter() + UNCOUNTED_SECONDS
    for _ in range(UNCOUNTED):
        run(data)
        if time.perf_counter() > end:
            break
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_COUNTED or time.perf_counter() < end:
        start = time.perf_counter()
        run(data)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _send(stream: IO[str], answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""One engine in a process of its own, so that engines share neither threads nor OpenCL; the parent's side too.

The child (`python worker.py ENGINE FILE`) takes one JSON line per command on standard input and answers by one line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
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
    """The parent's side. `problem` says why the engine does not work, "" if it does."""

    def __init__(self, engine: str, model: Path, data: Path, environment: dict[str, str] | None = None) -> None:
        """Start the engine on a file with a network and one with its input, and wait for the first answer."""
        self.engine = engine
        command = [sys.executable, str(Path(__file__)), engine, str(model), str(data)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        first = self._answer() or {"problem": "the process ended"}
        self.problem: str = first.get("problem", "")
        self.first_seconds: float = first.get("first_seconds", 0.0)
        self.output: Array = np.array([])
        if not self.problem:
            self.output = np.array(first["output"], first["dtype"]).reshape(first["shape"])

    def slice(self, seconds: float) -> list[float]:
        """Run for that long; return the milliseconds of every run."""
        answer = self._ask({"seconds": seconds})
        time.sleep(_SETTLE_SECONDS)
        times: list[float] = answer["times"]
        return times

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
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

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        if self._process.stdin is None:
            raise RuntimeError("no pipe")
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer is None:
            raise RuntimeError(f"{self.engine} ended in the middle")
        return answer

    def _answer(self) -> dict[str, Any] | None:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        return json.loads(line) if line else None


def main() -> None:
    """Serve one engine."""
    engine, model, data_path = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    data = np.load(data_path)
    try:
        from engines import LOADERS

        start = time.perf_counter()
        run = LOADERS[engine](Path(model).read_bytes())
        output = np.asarray(run(data))
        seconds = time.perf_counter() - start
    except Exception as error:
        message = next(iter(str(error).strip().splitlines()), "")
        _send(answers, {"problem": f"{type(error).__name__}: {message}"[:200]})
        return
    shape = {"output": output.reshape(-1).tolist(), "dtype": output.dtype.name, "shape": output.shape}
    _send(answers, {**shape, "first_seconds": seconds})
    for line in sys.stdin:
        _send(answers, {"times": timed(run, data, json.loads(line)["seconds"], engine)})


def timed(run: Run, data: Array, seconds: float, engine: str) -> list[float]:
    """Return the times of runs in ms; of the probe, its result."""
    if engine.startswith("distance"):
        return [found for _ in range(PROBES) if (found := float(run(data)[0]))]
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

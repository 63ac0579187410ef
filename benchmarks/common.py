# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: networks with their inputs, LiteRT as the peer, engines timed in turn."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

import nn_runtime as nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Array: TypeAlias = npt.NDArray[Any]
Engine: TypeAlias = "Callable[[Array], Array]"

MODELS = Path(os.environ.get("NNRT_MODEL_DIR", Path(__file__).parents[2] / "shared" / "models"))
THREADS = 2
SLICE_SECONDS = 0.5


@dataclass(frozen=True)
class Row:
    """One engine on one network: best, median and 99th percentile in ms, median of the ratios to each peer by round.

    The best hardly depends on what else the machine does.
    """

    network: str
    engine: str
    best_ms: float
    median_ms: float
    p99_ms: float
    ratios: Mapping[str, float]


def describe_machine() -> None:
    """Print processor, load, Python and devices."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    processor = platform.processor() or platform.machine()
    print(f"{processor}, {os.cpu_count()} cores{load}, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"devices: {', '.join(f'{device.name} ({device.version})' for device in nn.devices())}")


def golden(name: str) -> tuple[Array, Array]:
    """Return the first case of a network: input, and output of LiteRT's reference kernels."""
    with np.load(MODELS / "golden" / f"{name}.npz") as arrays:
        return arrays["in0_0"], arrays["ref0_0"]


def model_path(name: str) -> Path:
    """Return the path of a network."""
    return MODELS / f"{name}.tflite"


def litert(path: Path, xnnpack: bool) -> Engine:
    """Return LiteRT as a function: with its default delegate XNNPACK, or with its own kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_path=str(path), num_threads=THREADS, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]

    def run(data: Array) -> Array:
        interpreter.set_tensor(source, data)
        interpreter.invoke()
        output: Array = interpreter.get_tensor(result)
        return output

    return run


def ours(session: nn.Session) -> Engine:
    """Return a session as a function."""

    def run(data: Array) -> Array:
        return session.run([data])[0]

    return run


def compare(network: str, engines: Mapping[str, Engine], peers: tuple[str, ...], rounds: int) -> list[Row]:
    """Time engines on a network in turn, round by round, print and return their rows."""
    data, _ = golden(network)
    times: dict[str, list[list[float]]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine, run in engines.items():
            times[engine].append(timed(run, data))
    print(f"\n{network}")
    rows = []
    for engine in engines:
        ratios = {peer: _ratio(times[engine], times[peer]) for peer in peers}
        every = [one for part in times[engine] for one in part]
        row = Row(network, engine, min(every), statistics.median(every), float(np.percentile(every, 99)), ratios)
        beside = "  ".join(f"x{ratio:.2f} {peer}" for peer, ratio in ratios.items() if peer != engine)
        figures = f"best {row.best_ms:8.3f}  median {row.median_ms:8.3f}  p99 {row.p99_ms:8.3f} ms"
        print(f"  {engine:20} {figures}  {beside}")
        rows.append(row)
    return rows


def timed(run: Engine, data: Array) -> list[float]:
    """Return the times in ms of runs over SLICE_SECONDS, after two that do not count."""
    run(data)
    run(data)
    times: list[float] = []
    end = time.perf_counter() + SLICE_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run(data)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _ratio(own: list[list[float]], peer: list[list[float]]) -> float:
    """Return the median over the rounds of the medians' ratio."""
    pairs = zip(own, peer, strict=True)
    return statistics.median(statistics.median(mine) / statistics.median(other) for mine, other in pairs)

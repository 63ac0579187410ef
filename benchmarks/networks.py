# SPDX-License-Identifier: Apache-2.0
"""MobileNet V2, float and 8-bit: ours on every device beside LiteRT with XNNPACK, in turn, in one run.

    python benchmarks/networks.py [--rounds N] [--json FILE]

Networks are found in NNRT_MODEL_DIR (default: ../shared/models beside the checkout). Every engine gets the same
picture and 2 threads; a round runs each for a while, one after the other, and ratios are taken round by round, since
machines drift. Start-up is measured by child processes with empty and then with filled caches.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import nn_runtime as nn

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

MODELS = Path(os.environ.get("NNRT_MODEL_DIR", Path(__file__).parents[2] / "shared" / "models"))
NETWORKS = ("mobilenet_v2_1.0_224_float", "mobilenet_v2_1.0_224_quant", "tf2_mobilenet_v2_1.0_224_ptq")
PEER = "LiteRT XNNPACK"
DEVICES = {"Intel": "opencl:intel", "PoCL": "opencl:pocl", "CPU driver": "cpu"}
THREADS = 2
SLICE_SECONDS = 0.5


@dataclass(frozen=True)
class Row:
    """One engine on one network: median and 99th percentile in ms, median of the ratios to the peer by round."""

    network: str
    engine: str
    median_ms: float
    p99_ms: float
    ratio: float
    first_answer: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"devices: {', '.join(f'{device.name} ({device.version})' for device in nn.devices())}")
    rows = [row for name in NETWORKS for row in compare(name, arguments.rounds)]
    starts = {name: start_up(selector) for name, selector in DEVICES.items()}
    if arguments.json:
        document = {"rows": [asdict(row) for row in rows], "start_up_seconds": starts}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


def compare(name: str, rounds: int) -> list[Row]:
    """Run every engine on one network in turn and print its rows."""
    golden = np.load(MODELS / "golden" / f"{name}.npz")
    picture, wanted = golden["in0_0"], int(golden["ref0_0"].argmax())
    engines = {PEER: peer(MODELS / f"{name}.tflite")}
    sessions = [nn.load(MODELS / f"{name}.tflite").compile(device=selector) for selector in DEVICES.values()]
    for engine, session in zip(DEVICES, sessions, strict=True):
        engines[engine] = lambda data, session=session: session.run([data])[0]  # type: ignore[misc]
    times: dict[str, list[list[float]]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine, run in engines.items():
            times[engine].append(timed(run, picture))
    print(f"\n{name}")
    rows = []
    for engine, run in engines.items():
        pairs = zip(times[engine], times[PEER], strict=True)
        ratio = statistics.median(statistics.median(own) / statistics.median(other) for own, other in pairs)
        every = [one for part in times[engine] for one in part]
        answer = int(run(picture).argmax())
        if answer != wanted:
            raise SystemExit(f"{name} on {engine}: answers {answer}, wanted {wanted}")
        row = Row(name, engine, statistics.median(every), float(np.percentile(every, 99)), ratio, answer)
        print(f"  {engine:16} median {row.median_ms:8.3f} ms  p99 {row.p99_ms:8.3f} ms  x{row.ratio:.2f}")
        rows.append(row)
    for session in sessions:
        session.close()
    return rows


def peer(path: Path) -> Callable[[npt.NDArray[np.generic]], npt.NDArray[np.generic]]:
    """Return LiteRT with its default delegate (XNNPACK) as a function."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=THREADS)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]

    def run(data: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        interpreter.set_tensor(source, data)
        interpreter.invoke()
        output: npt.NDArray[np.generic] = interpreter.get_tensor(result)
        return output

    return run


def timed(run: Callable[[npt.NDArray[np.generic]], object], data: npt.NDArray[np.generic]) -> list[float]:
    """Return the times in ms of runs over SLICE_SECONDS, after two that do not count."""
    run(data)
    run(data)
    times = []
    end = time.perf_counter() + SLICE_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run(data)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def start_up(selector: str) -> dict[str, float]:
    """Return seconds from process start to the first answer, with every cache empty and with ours filled."""
    code = (
        "import sys, numpy as np, nn_runtime as nn\n"
        "golden = np.load(sys.argv[2])\n"
        "session = nn.load(sys.argv[1]).compile(device=sys.argv[3])\n"
        "print(session.run([golden['in0_0']])[0].argmax())\n"
    )
    name = NETWORKS[0]
    golden = str(MODELS / "golden" / f"{name}.npz")
    command = [sys.executable, "-c", code, str(MODELS / f"{name}.tflite"), golden, selector]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        caches = {"NNRT_CACHE_DIR": f"{folder}/ours", "POCL_CACHE_DIR": f"{folder}/pocl", "XDG_CACHE_HOME": folder}
        for state in ("empty", "filled"):
            start = time.perf_counter()
            subprocess.run(command, check=True, env={**os.environ, **caches}, stdout=subprocess.DEVNULL)
            found[state] = time.perf_counter() - start
    print(f"start to first answer, {selector}: {found['empty']:.2f} s empty, {found['filled']:.2f} s filled caches")
    return found


if __name__ == "__main__":
    main()

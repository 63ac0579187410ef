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
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from common import MODELS, Row, compare, describe_machine, golden, litert, model_path, ours

import nn_runtime as nn

NETWORKS = ("mobilenet_v2_1.0_224_float", "mobilenet_v2_1.0_224_quant", "tf2_mobilenet_v2_1.0_224_ptq")
PEER = "LiteRT XNNPACK"
DEVICES = {"Intel": "opencl:intel", "PoCL": "opencl:pocl", "CPU driver": "cpu"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    describe_machine()
    rows = [row for name in NETWORKS for row in measure(name, arguments.rounds)]
    starts = {name: start_up(selector) for name, selector in DEVICES.items()}
    if arguments.json:
        document = {"rows": [asdict(row) for row in rows], "start_up_seconds": starts}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


def measure(name: str, rounds: int) -> list[Row]:
    """Run every engine on one network in turn and print its rows."""
    data, wanted = golden(name)
    engines = {PEER: litert(model_path(name), xnnpack=True)}
    sessions = [nn.load(model_path(name)).compile(device=selector) for selector in DEVICES.values()]
    engines.update({engine: ours(session) for engine, session in zip(DEVICES, sessions, strict=True)})
    for engine, run in engines.items():
        answer = int(run(data).argmax())
        if answer != wanted.argmax():
            raise SystemExit(f"{name} on {engine}: answers {answer}, wanted {int(wanted.argmax())}")
    rows = compare(name, engines, (PEER,), rounds)
    for session in sessions:
        session.close()
    return rows


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

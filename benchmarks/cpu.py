# SPDX-License-Identifier: Apache-2.0
"""The CPU driver beside LiteRT, with its own kernels and with XNNPACK, on real networks, in turn, in one run.

    python benchmarks/cpu.py [--rounds N] [--json FILE] [NETWORK ...]

Networks are found in NNRT_MODEL_DIR (default: ../shared/models beside the checkout). LiteRT gets 2 threads; a round
runs each engine for a while, one after the other, and ratios are taken round by round, since machines drift.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from common import Row, compare, describe_machine, golden, litert, model_path, ours

import nn_runtime as nn

NETWORKS = (
    "mobilenet_v2_1.0_224_float",
    "mobilenet_v2_1.0_224_quant",
    "tf2_mobilenet_v2_1.0_224_ptq",
    "deeplabv3_mnv2_pascal_quant",
    "trained_lstm",
    "keras_lstm_mnist_ptq",
    "dtln_noise_suppression",
)
OWN_KERNELS, XNNPACK, CPU = "LiteRT own kernels", "LiteRT XNNPACK", "CPU driver"
AGREEMENT = 0.995
"""Part of the output's elements that must be within 2 steps of LiteRT's reference."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    describe_machine()
    rows = [row for name in arguments.networks for row in measure(name, arguments.rounds)]
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def measure(name: str, rounds: int) -> list[Row]:
    """Check the CPU driver's answer on one network, then time all engines."""
    path = model_path(name)
    with nn.load(path) as network, network.compile(device="cpu") as session:
        check(name, session)
        engines = {OWN_KERNELS: litert(path, xnnpack=False), XNNPACK: litert(path, xnnpack=True), CPU: ours(session)}
        return compare(name, engines, (OWN_KERNELS, XNNPACK), rounds)


def check(name: str, session: nn.Session) -> None:
    """Exit unless the first case's output is LiteRT's reference."""
    data, wanted = golden(name)
    result = session.run([data])[0].astype(np.float64)
    step = 1e-4 if wanted.dtype == np.float32 else 2
    if np.mean(np.abs(result - wanted) <= step) < AGREEMENT:
        raise SystemExit(f"{name}: the output is not the reference's")


if __name__ == "__main__":
    main()

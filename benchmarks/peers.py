# SPDX-License-Identifier: Apache-2.0
"""Ours beside every installed peer, in one command: measures, checks the answers, writes docs/PERFORMANCE.md.

    python benchmarks/peers.py                   every piece, then the report
    python benchmarks/peers.py --list            the pieces
    python benchmarks/peers.py PIECE ...         only these; the figures of the others stay, then the report

Peers come with `pip install ".[bench]"`; one that is missing is left out, and the report says so. A piece takes one to
two minutes and is kept in a file of docs/performance as soon as it is done: every kind of processor has one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import engines
import networks
from measure import Figures, compare, scaling, steadiness
from report import RESULTS, write_stored

import nn_runtime as nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIZES = ((1, 224), (8, 224), (32, 224), (1, 128), (1, 160), (1, 192), (1, 320), (1, 448))
"""Pictures at once, and their height and width."""
ALL = (*engines.OURS, *engines.NATIVE)
ON_OPENCL = ("PoCL", *engines.OPENCL_PEERS)
FLOAT16 = *(f"{name}{ending}" for name in ("PoCL", "Intel") for ending in ("", engines.IN_HALVES)), engines.LITERT
BESIDE_LITERT = ("PoCL", "Intel", engines.LITERT)
STEADY_RUNS = 2200
"""Without a pause, for the 99th percentile: 2,000, and some more as runs may be slower than those before."""
STARTS = 5
_START = """
import sys, time, numpy as np, nn_runtime as nn
session = nn.load(sys.argv[1]).compile(device=sys.argv[3])
session.run([np.load(sys.argv[2])["in0_0"]])
print(time.time())
"""
_START_OF_LITERT = """
import sys, time, numpy as np
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(sys.argv[1], num_threads=int(sys.argv[3]))
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.load(sys.argv[2])["in0_0"])
interpreter.invoke()
interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
print(time.time())
"""
_WIDE = {"AVX-512": "avx512f", "VNNI": "avx512_vnni", "AMX": "amx_int8"}
"""Flags of processors that tell how fast they may be."""


def main() -> None:
    """Measure what is asked for and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pieces", nargs="*", metavar="PIECE")
    parser.add_argument("--list", action="store_true", help="print the names of the pieces")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the report")
    parser.add_argument("--seconds", type=float, default=50, help="time to measure in each piece (default: 50)")
    arguments = parser.parse_args()
    pieces = _pieces()
    unknown = [name for name in arguments.pieces if name not in pieces]
    if unknown:
        parser.error(f"no piece {unknown[0]!r}; there are {', '.join(pieces)}")
    if arguments.list:
        print("\n".join(pieces))
        return
    if not arguments.report:
        _measure({name: pieces[name] for name in arguments.pieces or pieces}, arguments.seconds)
    if not write_stored():
        parser.error(f"no figures in {RESULTS}: measure first")


def _measure(pieces: Mapping[str, Callable[[float], Figures]], seconds: float) -> None:
    """Measure pieces and keep each; leaves with one line where networks are missing or a process fails."""
    missing = networks.missing()
    if missing:
        more = f" and {len(missing) - 1} more files" if missing[1:] else ""
        where = f"{networks.MODELS} (NNRT_MODEL_DIR)"
        sys.exit(f"peers.py: {where} lacks {missing[0]}{more}; docs/DATA.md says where they come from")
    for name, piece in pieces.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            _keep(name, piece(seconds))
        except subprocess.CalledProcessError as error:
            words = (error.stderr or "no message").strip().splitlines()[-1]
            sys.exit(f"peers.py: {name}: a process failed with status {error.returncode}: {words}")


def _pieces() -> Mapping[str, Callable[[float], Figures]]:
    """Return what is measured apart, by name."""
    found: dict[str, Callable[[float], Figures]] = {}
    for name in networks.TITLES:
        found[name] = lambda seconds, name=name: compare(name, ALL, seconds)  # type: ignore[misc]
    found["float16"] = lambda seconds: compare(networks.FLOAT, FLOAT16, seconds)
    for name in networks.MOBILENETS:
        found[f"opencl-{name}"] = lambda seconds, name=name: compare(name, ON_OPENCL, seconds, peer="PoCL")  # type: ignore[misc]
    for name in networks.SCALED:
        found[f"sizes-{name}"] = lambda seconds, name=name: scaling(name, BESIDE_LITERT, SIZES, seconds)  # type: ignore[misc]
    found["steadiness"] = lambda seconds: {
        "rows": {
            name: steadiness(name, BESIDE_LITERT, seconds / len(networks.MOBILENETS), STEADY_RUNS)
            for name in networks.MOBILENETS
        }
    }
    found["start"] = lambda _: {
        "rows": [start_up(name, engine) for name in networks.TITLES for engine in BESIDE_LITERT]
    }
    found["inside"] = inside
    return found


def _keep(piece: str, figures: Figures) -> None:
    """Add a piece to the results, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{_file_name(_processor())}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    stamp = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    results["machine"] = machine()
    results[piece] = {"measured": stamp, "load": load, **figures}
    path.write_text(json.dumps(results, indent=1) + "\n")


def machine() -> dict[str, object]:
    """Return processor, system, devices and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "devices": {device.name: device.version for device in nn.devices()},
        "threads": engines.THREADS,
        "versions": engines.versions(),
    }


def _file_name(processor: str) -> str:
    """Return what describes a processor without anything that file names should not have.

    Vector instructions are part of it: a virtual machine may hide some of a processor's, and figures with and without
    them are not of one table.
    """
    return re.sub("[^a-z0-9]+", "-", processor.lower()).strip("-")


def _processor() -> str:
    if sys.platform != "linux":
        return platform.processor() or platform.machine()
    lines = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    facts = {key.strip(): value.strip() for key, value in reversed(lines)}
    flags = facts.get("flags", "").split()
    wide = ", ".join(name for name, flag in _WIDE.items() if flag in flags)
    name = re.sub(r"\(R\)|\(TM\)", "", facts.get("model name", platform.machine()))
    return f"{name} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}; {wide or 'no AVX-512'})"


def start_up(network: str, engine: str) -> Figures:
    """Return seconds from process start to the first answer: every cache empty (once), ours filled (median).

    LiteRT keeps nothing, and has the second figure alone. Python's bytecode is there from the start, as pip leaves it,
    also where this process is told not to write any.
    """
    is_ours = engine in engines.OURS
    script, argument = (_START, engines.OURS[engine]) if is_ours else (_START_OF_LITERT, str(engines.THREADS))
    paths = networks.MODELS / f"{network}.tflite", networks.MODELS / "golden" / f"{network}.npz"
    command = [sys.executable, "-c", script, *map(str, paths), argument]
    times = []
    with tempfile.TemporaryDirectory() as folder:
        bytecode = {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
        for caches in ("first", *["measured"] * (1 + STARTS)):
            environment = {
                **os.environ,
                **bytecode,
                "NNRT_CACHE_DIR": f"{folder}/{caches}/ours",
                "POCL_CACHE_DIR": f"{folder}/{caches}/pocl",
                "XDG_CACHE_HOME": f"{folder}/{caches}",
            }
            start = time.time()
            run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            times.append(float(run.stdout) - start)
    found = {"network": network, "engine": engine, "filled_seconds": sorted(times[2:])[STARTS // 2]}
    return {**found, "empty_seconds": times[1]} if is_ours else found


def inside(_: float) -> Figures:
    """Return what the driver says of itself on both devices, each network in a process with empty program cache."""
    rows = []
    for name in networks.MOBILENETS:
        for title in ("PoCL", "Intel"):
            command = [sys.executable, str(Path(__file__).with_name("inside.py")), engines.OURS[title], name]
            with tempfile.TemporaryDirectory() as folder:
                run = subprocess.run(command, capture_output=True, text=True, check=True,
                                     env={**os.environ, "NNRT_CACHE_DIR": folder})  # fmt: skip
            rows.append({"network": name, "engine": title, **json.loads(run.stdout)})
    return {"rows": rows}


if __name__ == "__main__":
    main()

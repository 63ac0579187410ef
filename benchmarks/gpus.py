# SPDX-License-Identifier: Apache-2.0
"""MobileNet V2 on a GPU beside PyTorch and ONNX Runtime on CUDA, in one command: adds a section to docs/PERFORMANCE.md.

    python benchmarks/gpus.py                     every GPU of `nnrt devices`
    python benchmarks/gpus.py --device opencl:1   another device

One picture and 64 at once, in float32, float16 and 8 bits, from the host and with the data on the device; then what
the convolutions reach of the device's measured peaks, how many launches there are, and how long the device is idle
between them. Peers come with `pip install torch onnxruntime-gpu`; one that is missing is left out, and the report says
so. Networks are read as `peers.py` does.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engines
import networks
import numpy as np
from gpu_engines import FLOAT16, FROM_HOST, ON_DEVICE, ONNX_RUNTIME, PYTORCH, name_of
from measure import agreement, in_turn
from peers import machine
from report import RESULTS, write_stored
from worker import Worker

import nn_runtime as nn
from nn_runtime.codes import DeviceTypeCode
from nn_runtime.devices import select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from measure import Figures

    from nn_runtime.device import Device

FLOAT32, PER_TENSOR, PER_CHANNEL = "float32", "8-bit per tensor", "8-bit per channel"
NUMBERS = {
    FLOAT32: networks.FLOAT,
    FLOAT16: networks.FLOAT,
    PER_TENSOR: networks.QUANT,
    PER_CHANNEL: networks.PER_CHANNEL,
}
"""The network's file by the numbers it is measured in."""
BATCHES = (1, 64)
SLICE_SECONDS = 0.1
PROFILED_RUNS = 50
PACKAGES = ("numpy", "pyopencl", "torch", "onnxruntime", "onnxruntime-gpu")


def main() -> None:
    """Measure what is asked for and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", metavar="SELECTOR", help="one device of `nnrt devices` (default: every GPU)")
    parser.add_argument("--seconds", type=float, default=50, help="time to measure with each batch (default: 50)")
    arguments = parser.parse_args()
    missing = networks.missing()
    if missing:
        sys.exit(f"gpus.py: {networks.MODELS} (NNRT_MODEL_DIR) lacks {missing[0]}; docs/DATA.md says where it is from")
    for device in _devices(arguments.device):
        print(f"{device.name} ...", file=sys.stderr, flush=True)
        figures = measured(device, arguments.seconds)
        RESULTS.mkdir(exist_ok=True)
        name = re.sub("[^a-z0-9]+", "-", f"gpu-{figures['device']['title']}".lower()).strip("-")
        (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    write_stored()


def _devices(selector: str | None) -> Sequence[Device]:
    """Return the device asked for, or every GPU; leaves with one line where there is none."""
    try:
        if selector is not None:
            return select(selector).devices[:1]
    except nn.NNError as error:
        sys.exit(f"gpus.py: {error}")
    found = [device for device in nn.devices() if device.type == DeviceTypeCode.GPU]
    if not found:
        sys.exit("gpus.py: OpenCL has no GPU here (`nnrt devices` lists what there is); --device names another device")
    return found


def measured(device: Device, seconds: float) -> Figures:
    """Return all figures of a device."""
    title = (device.description.device_name if device.description else "") or device.name
    return {
        "machine": {**machine(), "versions": engines.versions(PACKAGES)},
        "device": {"name": device.name, "title": title, "version": device.version},
        "measured": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "batches": [{"batch": batch, "rows": compared(device.name, batch, seconds)} for batch in BATCHES],
        "inside": [inside(device.name, numbers, batch) for batch in BATCHES for numbers in NUMBERS],
    }


def compared(selector: str, batch: int, seconds: float) -> list[Figures]:
    """Return a row for each engine, in its numbers, with its data in either place; all of them in paired rounds."""
    rows: dict[str, Figures] = {}
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for engine, numbers, place in _entries(selector):
            name = name_of(engine, numbers, place)
            model, data, wanted = _network(folder, numbers, batch)
            worker = workers[name] = stack.enter_context(Worker(name, model, data))
            rows[name] = {"engine": engine, "numbers": numbers, "place": place}
            if not worker.problem:
                rows[name] |= agreement(worker.output, wanted)
        peers = {name_of(*entry): name_of(PYTORCH, _peer_numbers(entry[1]), entry[2]) for entry in _entries(selector)}
        figures = in_turn(workers, peers, seconds, SLICE_SECONDS)
    return [{**row, **figures[name], "peer_ran": not figures[peers[name]]["problem"]} for name, row in rows.items()]


def _entries(selector: str) -> Iterator[tuple[str, str, str]]:
    """Yield engine, numbers and place of the data, of all that is measured."""
    for place in (FROM_HOST, ON_DEVICE):
        yield from ((selector, numbers, place) for numbers in NUMBERS)
        yield from ((PYTORCH, numbers, place) for numbers in (FLOAT32, FLOAT16))
    yield from ((ONNX_RUNTIME, numbers, FROM_HOST) for numbers in NUMBERS if numbers != FLOAT16)


def _peer_numbers(numbers: str) -> str:
    """Return the numbers in which PyTorch is the peer: it has no 8-bit convolutions on CUDA, float16 is its fastest."""
    return FLOAT32 if numbers == FLOAT32 else FLOAT16


def _network(folder: Path, numbers: str, batch: int) -> tuple[Path, Path, networks.Array]:
    """Return files with a network and its input, and the right output; each is made once."""
    name = NUMBERS[numbers]
    model, data = folder / f"{name}.tflite", folder / f"{name}.npz"
    picture, wanted = networks.golden(name)
    if not model.exists():
        model.write_bytes(networks.rescaled(networks.model_bytes(name), batch, picture.shape[1]))
        np.savez(data, np.repeat(picture, batch, axis=0))
    return model, data, np.repeat(wanted, batch, axis=0)


def inside(selector: str, numbers: str, batch: int) -> Figures:
    """Return what `nnrt benchmark --profile` says of one network."""
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = _network(Path(folder), numbers, batch)
        if numbers == FLOAT16:
            path.write_bytes(networks.halved(path.read_bytes()))
        command = [sys.executable, "-m", "nn_runtime", "benchmark", str(path), "--device", selector, "--profile",
                   "--json", "--runs", str(PROFILED_RUNS)]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    row = {"numbers": numbers, "batch": batch}
    if run.returncode != 0:
        return {**row, "problem": (run.stderr or "no message").strip().splitlines()[-1]}
    return {**row, "problem": "", **inside_figures(json.loads(run.stdout), selector)}


def inside_figures(report: Mapping[str, Any], device: str) -> Figures:
    """Return times in us, and parts of peaks, of the report of `nnrt benchmark --profile --json`.

    idle_us: between the end of a launch and the start of the next, in the profiled runs. of_peak: of the peak of
    arithmetic, by all convolutions but depthwise ones; of_roofline: of what the peaks of arithmetic and of memory
    together allow, by the same; of_memory: of the peak of memory, by depthwise ones.
    """
    launches, timed = report["launches"], report["timed"] or {}
    on_device, in_driver = (timed.get(what) and timed[what]["p50"] / 1e3 for what in ("on_device", "in_driver"))
    idle = [max(0.0, after["start"] - before["start"] - before["median"]) for before, after in pairwise(launches)]
    peaks = report["peaks"].get(device)
    by_kind = {kind: [one for one in launches if kind in one["node_type"].split("+")]
               for kind in ("CONV_2D", "DEPTHWISE_CONV_2D")}  # fmt: skip
    return {
        "launches": len(launches),
        "on_device_us": on_device,
        "in_driver_minus_on_device_us": in_driver - on_device if on_device and in_driver else None,
        "in_launches_us": sum(one["median"] for one in launches) / 1e3,
        "idle_us": sum(idle) / 1e3,
        "median_gap_us": statistics.median(idle) / 1e3 if idle else None,
        "peaks": peaks,
        **(_parts_of(peaks, *by_kind.values()) if peaks else dict.fromkeys(("of_peak", "of_roofline", "of_memory"))),
    }


def _parts_of(
    peaks: Mapping[str, float], products: Sequence[Mapping[str, Any]], depthwise: Sequence[Mapping[str, Any]]
) -> Figures:
    """Return the parts of the peaks."""

    def computed(one: Mapping[str, Any]) -> float:
        return float(one["flops"] / peaks[one["arithmetic"]])

    def moved(one: Mapping[str, Any]) -> float:
        return float(one["bytes_moved"] / peaks["memory"])

    return {
        "of_peak": _part(products, computed),
        "of_roofline": _part(products, lambda one: max(computed(one), moved(one))),
        "of_memory": _part(depthwise, moved),
    }


def _part(launches: Sequence[Mapping[str, Any]], least: Callable[[Mapping[str, Any]], float]) -> float | None:
    """Return the least time that the peaks allow for launches over the time that they take."""
    taken = sum(one["median"] for one in launches)
    return sum(least(one) for one in launches) / taken if taken else None


if __name__ == "__main__":
    main()

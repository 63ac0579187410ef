# SPDX-License-Identifier: Apache-2.0
"""Single layers and small blocks of networks: ours on PoCL and Intel's runtime beside LiteRT with XNNPACK.

    python benchmarks/layers.py                  every layer
    python benchmarks/layers.py WORD ...         those with one of the words in their names: SOFTMAX, block, int8
    python benchmarks/layers.py --rest           those that have no figures yet, after an interruption
    python benchmarks/layers.py --list           the names

A layer takes about a second, more when its kernels are compiled for the first time. It is kept in docs/layers.json as
soon as it is done; once every layer is there, docs/LAYERS.md is written.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from engines import LITERT
from layer_cases import LAYERS
from markup import table
from measure import in_turn
from peers import machine
from report import machine_line
from worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from measure import Figures
    from networks import Array

OURS = ("PoCL", "Intel")
SLICE_SECONDS = 0.012
KEPT = ("problem", "median_ms", "ratio")
DOCUMENT = Path(__file__).parents[1] / "docs" / "LAYERS.md"
RESULTS = DOCUMENT.with_name("layers.json")
HEADER = ("layer", "PoCL ms", "Intel ms", "LiteRT ms", "PoCL / LiteRT", "Intel / LiteRT", "largest difference")
SUMMARY_HEADER = (
    *("layers", "number", "PoCL / LiteRT, geometric mean", "of them not slower"),
    *("Intel / LiteRT, geometric mean", "of them not slower"),
)
SMALLEST = "tiny ADD 16 float32"
SHORT_MS = 0.05
"""What LiteRT needs for a layer that is called short."""
_INTRODUCTION = """\
Written by `python benchmarks/layers.py`; [PERFORMANCE.md](PERFORMANCE.md) has whole networks. Layers of
networks in wide use, and a few blocks of them, each as a network of its own (`benchmarks/layer_cases.py`): our
OpenCL driver on PoCL and on Intel's runtime, and LiteRT with XNNPACK."""
_METHOD = """\
**How.** Every engine runs in a process of its own, in slices of {slice_ms:.0f} ms, one engine after the other,
round after round. A time is the median of calls as an application makes them: inputs handed over, outputs
taken. A ratio is the median over the rounds of our time to LiteRT's. LiteRT has {threads} threads; an OpenCL
device takes every core, of which this machine has {cores}. The largest difference is that of either device's
output to LiteRT's: of float32 over LiteRT's largest value, or over 1 if that is less; of int8 in steps. XNNPACK
does not take every layer: the others run by LiteRT's own kernels."""
_MEANING = """\
**What it shows.** How far each kind of layer is, on its own, from fast code for this processor. It is no
estimate of a network: every call has a fixed cost, {calls} for the sum of 16 numbers, for the runtime's work
and for threads to wake and to meet. Where LiteRT needs less than {short_ms:.2f} ms, the ratio mostly says what
a call costs. A network pays the runtime's part once for all its layers, and operations that one launch joins
share the threads' part too."""


def main() -> None:
    """Measure what is asked for and write the document where nothing is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a layer's name")
    parser.add_argument("--list", action="store_true", help="print the names of the layers")
    parser.add_argument("--rest", action="store_true", help="only layers without figures")
    parser.add_argument("--seconds", type=float, default=0.5, help="time to measure each layer (default: 0.5)")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    measured = results.get("layers", {})
    names = [name for name in LAYERS if not arguments.words or any(word in name for word in arguments.words)]
    if not names:
        parser.error("no layer has such a name; --list prints them")
    if arguments.rest:
        names = [name for name in names if name not in measured]
    if arguments.list:
        print("\n".join(names))
        return
    where = machine()
    print(" | ".join(HEADER))
    for name, layer in _figures(names, arguments.seconds):
        measured[name] = layer
        RESULTS.write_text(json.dumps({"machine": where, "layers": measured}, indent=1) + "\n")
        print(" | ".join(cells(name, layer)), *problems(layer), flush=True)
    if not LAYERS.keys() - measured.keys():
        DOCUMENT.write_text(document(json.loads(RESULTS.read_text())), encoding="utf-8")


def _figures(names: Sequence[str], seconds: float) -> Iterable[tuple[str, Figures]]:
    """Measure layers; every engine has one process for all of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model, inputs = folder / "model.tflite", folder / "data.npz"
        workers: dict[str, Worker] = {}
        for name in names:
            content, data = LAYERS[name]()
            model.write_bytes(content)
            np.savez(inputs, *data)
            for engine in (*OURS, LITERT):
                if engine in workers:
                    workers[engine].load(model, inputs)
                else:
                    workers[engine] = stack.enter_context(Worker(engine, model, inputs))
            outputs = [workers[one].output for one in OURS if not workers[one].problem]
            rows = in_turn(workers, dict.fromkeys(workers, LITERT), seconds, SLICE_SECONDS)
            yield (
                name,
                {
                    "measured": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                    "difference": difference(outputs, workers[LITERT].output),
                    "rows": {one: {what: row[what] for what in KEPT if what in row} for one, row in rows.items()},
                },
            )


def difference(outputs: Sequence[Array], wanted: Array) -> str:
    """Return the largest difference to a peer's output: float32 over the peer's largest value, or 1; int8 in steps."""
    if not outputs or not wanted.size:
        return "-"
    if any(output.shape != wanted.shape for output in outputs):
        return "shape " + ", ".join(str(list(output.shape)) for output in (*outputs, wanted))
    peer = wanted.astype(np.float64)
    largest = max(float(np.abs(output.astype(np.float64) - peer).max()) for output in outputs)
    if wanted.dtype != np.float32:
        return f"{largest:.0f} steps"
    return f"{largest / max(1.0, float(np.abs(peer).max())):.1e}"


def cells(name: str, layer: Figures) -> list[str]:
    """Return a layer's row of the table."""
    rows = layer["rows"]
    times = ["-" if rows[one]["problem"] else f"{rows[one]['median_ms']:.3f}" for one in (*OURS, LITERT)]
    ratios = ["-" if ratio is None else f"{ratio:.2f}" for ratio in (_ratio(layer, one) for one in OURS)]
    return [name, *times, *ratios, layer["difference"]]


def problems(layer: Figures) -> list[str]:
    """Return why engines have no figures for a layer."""
    return [f"{engine}: {row['problem']}" for engine, row in layer["rows"].items() if row["problem"]]


def document(results: Figures) -> str:
    """Return docs/LAYERS.md."""
    layers = {name: results["layers"][name] for name in LAYERS}
    dates = sorted(layer["measured"] for layer in layers.values())
    smallest = layers[SMALLEST]["rows"]
    calls = ", ".join(f"{smallest[one]['median_ms'] * 1e3:.0f} us ({one})" for one in (*OURS, LITERT)
                      if not smallest[one]["problem"])  # fmt: skip
    trouble = [f"`{name}`: {why}." for name, layer in layers.items() for why in problems(layer)]
    parts = [
        "# Single layers",
        _INTRODUCTION,
        machine_line(results["machine"]) + f" Measured from {dates[0]} to {dates[-1]}.",
        _METHOD.format(slice_ms=SLICE_SECONDS * 1e3, **results["machine"]),
        _MEANING.format(calls=calls, short_ms=SHORT_MS),
        table(SUMMARY_HEADER, _summary(layers)),
        *([" ".join(("Left out:", *trouble))] if trouble else []),
    ]
    for kind in ("float32", "int8"):
        rows = [cells(name, layer) for name, layer in layers.items() if name.endswith(f" {kind}")]
        parts += [f"## {kind}", table(HEADER, rows)]
    return "\n\n".join(parts) + "\n"


def _summary(layers: Figures) -> Iterable[list[str]]:
    """Return rows on the short and the other layers of each type: number, and for each device mean and count."""
    for kind in ("float32", "int8"):
        for title, is_short in ((f"LiteRT below {SHORT_MS:.2f} ms", True), ("the others", False)):
            found = [
                layer for name, layer in layers.items()
                if name.endswith(f" {kind}") and not layer["rows"][LITERT]["problem"]
                and (layer["rows"][LITERT]["median_ms"] < SHORT_MS) == is_short
            ]  # fmt: skip
            row = [f"{kind}, {title}", str(len(found))]
            for engine in OURS:
                ratios = [ratio for layer in found if (ratio := _ratio(layer, engine)) is not None]
                mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
                row += [mean, str(sum(ratio <= 1 for ratio in ratios))]
            yield row


def _ratio(layer: Figures, engine: str) -> float | None:
    rows = layer["rows"]
    return None if rows[engine]["problem"] or rows[LITERT]["problem"] else rows[engine]["ratio"]


if __name__ == "__main__":
    main()

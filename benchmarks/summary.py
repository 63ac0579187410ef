# SPDX-License-Identifier: Apache-2.0
"""The first tables of docs/PERFORMANCE.md: every processor and every GPU at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networks
from markup import link_to, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from measure import Figures

_OURS = ("PoCL", "Intel")
_PLACES = ("on the device", "from the host")


def processors_table(processors: Iterable[Figures]) -> str:
    """Return our ratios to LiteRT on every kind of processor, and those of OpenCL peers to us."""
    rows = [
        (
            link_to(results["machine"]["processor"]),
            *(_ratios(results.get(name), _OURS, digits=2) for name in networks.TITLES),
            _ratios(results.get(f"opencl-{networks.FLOAT}"), ("tinygrad OpenCL", "OpenCV OpenCL"), digits=0),
        )
        for results in processors
    ]
    return (
        "Our time over LiteRT's with XNNPACK, both with two threads, on PoCL / on Intel's OpenCL runtime: below 1, "
        "ours is faster. Last, how many times as long tinygrad / OpenCV take by OpenCL on the same PoCL device "
        "(float32).\n\n" + table(("processor", *networks.TITLES.values(), "OpenCL peers"), rows)
    )


def gpus_table(gpus: Iterable[Figures]) -> str:
    """Return our ratios to PyTorch on every GPU."""
    pieces = [(results["device"], piece) for results in gpus for piece in results["batches"]]
    kinds = tuple(dict.fromkeys(row["numbers"] for _, piece in pieces for row in piece["rows"]))
    rows = [
        (
            link_to(device["title"]),
            str(piece["batch"]),
            *(_at_places([row for row in piece["rows"] if row["engine"] == device["name"]], kind) for kind in kinds),
        )
        for device, piece in pieces
    ]
    return (
        "Our time over PyTorch's with CUDA graphs (float16 in place of 8 bits, which it does not have there), "
        "MobileNet V2, with the data on the device / copied from the host's memory and back in every run.\n\n"
        + table(("GPU", "pictures at once", *kinds), rows)
    )


def _ratios(piece: Figures | None, engines: Iterable[str], *, digits: int) -> str:
    rows = {} if piece is None else piece["rows"]
    found = (rows[engine] for engine in engines if engine in rows and not rows[engine]["problem"])
    return " / ".join(f"{row['ratio']:.{digits}f}" for row in found) or "-"


def _at_places(rows: Iterable[Figures], numbers: str) -> str:
    ratios = {
        row["place"]: row["ratio"]
        for row in rows
        if row["numbers"] == numbers and not row["problem"] and row["peer_ran"]
    }
    return " / ".join(f"{ratios[place]:.2f}" for place in _PLACES if place in ratios) or "-"

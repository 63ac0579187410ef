# SPDX-License-Identifier: Apache-2.0
"""Summarize a trace by layer and phase.

Run anything with NNRT_TRACE=file.json to make one. `total` counts everything within a span, `own` what no other span
within it covers: the time of a run that is spent above the driver, or in the driver but not in its kernels. The kernels
that took longest follow. The file itself opens in chrome://tracing and in Perfetto.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from nn_runtime.cli.networks import positive
from nn_runtime.cli.output import named_path, print_json, print_lines, table
from nn_runtime.errors import BadData
from nn_runtime.observe.trace_summary import read_spans, summary, summary_of_kernels
from nn_runtime.reports import duration_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from nn_runtime.observe.trace_summary import KernelSummary, PhaseSummary, Span

_KERNELS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    parser.add_argument("file", metavar="FILE", type=named_path, help="trace that NNRT_TRACE wrote")
    parser.add_argument("--kernels", metavar="N", type=positive, default=_KERNELS,
                        help=f"how many kernels to list (default: {_KERNELS})")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the summary."""
    spans = _spans(args.file)
    phases, kernels = summary(spans), summary_of_kernels(spans)[: args.kernels]
    if args.json:
        print_json({"phases": [asdict(row) for row in phases], "kernels": [asdict(row) for row in kernels]})
        return 0
    print_lines(_phase_lines(phases))
    if kernels:
        print_lines(["", *_kernel_lines(kernels)])
    return 0


def _phase_lines(phases: Sequence[PhaseSummary]) -> list[str]:
    header = ("layer", "phase", "count", "total", "own")
    rows = [
        (row.layer, row.phase, str(row.count), duration_text(row.total_ns), duration_text(row.own_ns)) for row in phases
    ]
    return table(header, rows, right=header[2:])


def _kernel_lines(kernels: Sequence[KernelSummary]) -> list[str]:
    header = ("kernel", "count", "total", "average")
    rows = [
        (row.kernel, str(row.count), duration_text(row.total_ns), duration_text(row.total_ns / row.count))
        for row in kernels
    ]
    return table(header, rows, right=header[1:])


def _spans(file: Path) -> list[Span]:
    try:
        return read_spans(file)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadData(f"{file}: no trace in Chrome's format: wanted JSON: {error}") from error
    except ValueError as error:
        raise BadData(f"{file}: {error}") from error

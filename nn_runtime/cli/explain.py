# SPDX-License-Identifier: Apache-2.0
"""Show where each operation of a network runs, and why.

One line per operation: its index, device, step of the plan, estimated time where there is an estimate, and the reason
of every device that refused it. Devices that may be faster by the estimates are named: a session's first run decides.
`nnrt benchmark --profile` shows measured times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from nn_runtime.cli.networks import (
    add_network_arguments,
    compiled,
    loaded,
    missing_opencl_lines,
    places,
    places_text,
)
from nn_runtime.cli.output import busy, print_json, print_lines, table
from nn_runtime.reports import duration_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from nn_runtime.reports import ExplainedOperation, Explanation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    add_network_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace) -> int:
    """Compile the network and print the placement."""
    with busy("preparing"), loaded(args) as network:
        session = compiled(network, args)
    with session:
        explanation = session.explain()
        rivals = session.rivals
    if args.json:
        print_json({**_as_json(explanation), "rivals": rivals})
        return 0
    header = ("index", "operation", "device", "step", "estimate", "other devices")
    print_lines(table(header, map(_cells, explanation.operations), right=("index", "step", "estimate")))
    print_lines(["", places_text(explanation), *_rival_lines(rivals), *_refusal_lines(explanation)])
    print_lines(missing_opencl_lines(args.device))
    return 0


def _cells(row: ExplainedOperation) -> tuple[str, ...]:
    return str(row.index), row.name, row.device, str(row.step), duration_text(row.estimated_ns), row.why


def _rival_lines(rivals: Sequence[str]) -> list[str]:
    return [f"perhaps faster on {' or '.join(rivals)}: the first run decides"] if rivals else []


def _refusal_lines(explanation: Explanation) -> list[str]:
    refused = Counter(device for row in explanation.operations for device in row.refusals)
    return [f"{device} refused {count} of {len(explanation.operations)}" for device, count in refused.items()]


def _as_json(explanation: Explanation) -> dict[str, object]:
    return {
        "operations": [
            {**asdict(row), "refusals": dict(row.refusals), "elsewhere_ns": dict(row.elsewhere_ns)}
            for row in explanation.operations
        ],
        "devices": [asdict(place) for place in places(explanation)],
    }

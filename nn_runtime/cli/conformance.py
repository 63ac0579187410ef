# SPDX-License-Identifier: Apache-2.0
"""Run operation examples on a device and judge the results.

The folder holds <version>/<spec>.json.gz files. Every example runs in the kinds it allows: plain,
dynamic_output_shape, quant8_to_signed, device_memory. Prints a table per operation, the failing
examples, and the counts; the exit status is 1 if any example failed, or none passed.
"""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from nn_runtime.cli.networks import positive
from nn_runtime.cli.output import UsageError, named_path, on_terminal, print_json, print_lines, show_progress
from nn_runtime.codes import OperationCode
from nn_runtime.testing.conformance import Filter, Through, Verdict, run_corpus
from nn_runtime.testing.corpus import Kind

if TYPE_CHECKING:
    from collections import Counter

    from nn_runtime.testing.conformance import Report, Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    parser.add_argument("folder", metavar="DIR", type=named_path, help="folder of the examples")
    parser.add_argument("--device", metavar="SELECTOR", default=None,
                        help="the first device of it (default: NNRT_DEVICE, PYOPENCL_CTX or opencl,cpu)")  # fmt: skip
    kinds = [kind.value for kind in Kind]
    parser.add_argument("--kinds", metavar="KIND,..", type=_kinds, default=tuple(Kind), help=", ".join(kinds))
    parser.add_argument("--only", metavar="SUBSTRING", default="", help="only examples with this in their name")
    parser.add_argument("--exclude", metavar="SUBSTRING", default="", help="no examples with this in their name")
    parser.add_argument("--operations", metavar="A,B", type=_operations, default=(), help="only these main operations")
    parser.add_argument("--jobs", metavar="N", type=positive, default=1, help="processes (default: 1)")
    parser.add_argument("--through", choices=[through.value for through in Through], default=Through.NDK.value,
                        help="interface or way that drives the device (default: ndk)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print every result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the corpus, print the report; return 1 if any example failed or none passed."""
    chosen = Filter(args.kinds, args.only, args.exclude, args.operations)
    progress = functools.partial(show_progress, "files") if on_terminal() else None
    report = run_corpus(args.folder, args.device, chosen, args.jobs, Through(args.through), progress)
    if not report.results:
        raise UsageError(f"no example in {args.folder} matches --kinds, --only, --exclude and --operations")
    if args.json:
        print_json(_as_json(report))
    else:
        _print_report(report)
    counts = report.counts()
    return 0 if counts[Verdict.PASSED] and not counts[Verdict.FAILED] else 1


def _kinds(text: str) -> tuple[Kind, ...]:
    try:
        return tuple(Kind(name) for name in _names(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; wanted {', '.join(kind.value for kind in Kind)}") from error


def _operations(text: str) -> tuple[str, ...]:
    names = _names(text.upper())
    unknown = [name for name in names if name not in OperationCode.__members__]
    if unknown:
        raise argparse.ArgumentTypeError(f"NNAPI has no operation {', '.join(map(repr, unknown))}")
    return names


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _print_report(report: Report) -> None:
    table = report.by_operation()
    width = max([len("operation"), *map(len, table)])
    print_lines([f"device {report.device}", f"{'operation':<{width}}  passed  failed  unsupported"])
    print_lines(f"{operation:<{width}}  {_columns(counts)}" for operation, counts in table.items())
    for verdict in (Verdict.UNSUPPORTED, Verdict.FAILED):
        print_lines(_line(result) for result in report.results if result.verdict == verdict)
    counts = report.counts()
    print_lines([", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)])


def _columns(counts: Counter[Verdict]) -> str:
    return f"{counts[Verdict.PASSED]:>6}  {counts[Verdict.FAILED]:>6}  {counts[Verdict.UNSUPPORTED]:>11}"


def _line(result: Result) -> str:
    return f"{result.verdict.value} {result.spec} {result.example} ({result.kind.value}): {result.message}"


def _as_json(report: Report) -> dict[str, object]:
    return {
        "device": report.device,
        "counts": {verdict.value: report.counts()[verdict] for verdict in Verdict},
        "results": [
            {
                "example": result.example,
                "spec": result.spec,
                "operation": result.operation,
                "kind": result.kind.value,
                "verdict": result.verdict.value,
                "message": result.message,
            }
            for result in report.results
        ],
    }

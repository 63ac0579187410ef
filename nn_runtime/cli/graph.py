# SPDX-License-Identifier: Apache-2.0
"""Draw a network: operands and operations as a graph.

Without --output the graph is printed in the DOT language of graphviz. With --output it is written to a file: one that
ends in .dot as it is, any other ending (.svg, .png, .pdf ...) as a picture, which takes an installed graphviz.

Text has a node for every operand; pictures show constants inside their operations, unless --full is given.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from nn_runtime.cli.networks import add_model_arguments, loaded
from nn_runtime.cli.output import UsageError, check_folder, new_file, print_json, print_lines, print_text
from nn_runtime.errors import OperationFailed
from nn_runtime.hal.files import result_file
from nn_runtime.observe.graph_dump import dot
from nn_runtime.observe.picture import picture
from nn_runtime.reports import counted

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and arguments."""
    add_model_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=new_file, help="where to write it (default: print it)")
    parser.add_argument("--full", action="store_true", help="a node for every operand in a picture, too")
    parser.add_argument("--json", action="store_true", help="print what was drawn, and the graph or its file, as JSON")


def run(args: argparse.Namespace) -> int:
    """Draw the graph."""
    output: Path | None = args.output
    if output is not None and not output.suffix:
        raise UsageError(f"--output {output}: the ending says what to write: .dot, .svg, .png ...")
    if output is not None:
        check_folder("--output", output)
    with loaded(args) as network:
        model = network.model.hal
        is_picture = output is not None and not _is_text(output)
        draw = picture if is_picture and not args.full else dot
        text = draw(model, Path(args.model).name)
        counts = {"operands": len(model.main.operands), "operations": len(model.main.operations)}
    if output is not None:
        _write(text, output)
    if args.json:
        print_json({**counts, "output": str(output)} if output is not None else {**counts, "dot": text})
    elif output is None:
        print_text(text)
    else:
        operations, operands = (counted(counts[f"{what}s"], what) for what in ("operation", "operand"))
        print_lines([f"{output}: {operations}, {operands}"])
    return 0


def _is_text(output: Path) -> bool:
    return output.suffix.lower() == ".dot"


def _write(text: str, output: Path) -> None:
    """Write the DOT text, or the picture that graphviz makes of it; raises OperationFailed, OSError."""
    data = text.encode(errors="backslashreplace")  # names of files may be no text
    if not _is_text(output):
        program = shutil.which("dot")
        if program is None:
            raise OperationFailed(f"{output}: a picture takes graphviz, which is not installed; .dot needs nothing")
        done = subprocess.run([program, f"-T{output.suffix[1:].lower()}"], input=data, capture_output=True, check=False)
        if done.returncode:
            raise OperationFailed(f"{output}: dot failed: {done.stderr.decode(errors='replace').strip()}")
        data = done.stdout
    with result_file(output) as file:
        file.write(data)

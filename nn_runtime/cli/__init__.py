# SPDX-License-Identifier: Apache-2.0
"""The command `nnrt`: one module of this folder per command, imported only when that command is asked for.

A command's module has `add_arguments(parser)` and `run(args) -> int` (the exit status), and its docstring is its help.
Errors are one line on standard error: exit status 2 for wrong usage, 130 for Ctrl-C, 1 for anything else that failed.
Where the reader of a pipe has seen enough there is nothing to say: exit status 141.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import signal
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from nn_runtime import __version__
from nn_runtime.cli.output import (
    STANDARD_OUTPUT,
    UsageError,
    flush_output,
    print_error,
    print_text,
    show_warnings,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

COMMANDS = {
    "demo": "classify scanned digits, end to end",
    "run": "run a network on pictures or arrays",
    "benchmark": "time a network",
    "explain": "show where each operation of a network runs, and why",
    "graph": "draw a network as a graph",
    "trace": "summarize a trace by layer and phase",
    "devices": "list the devices",
    "doctor": "examine this machine and say how to mend what is wrong",
    "tune": "search for the numbers with which a device runs networks fastest",
    "conformance": "run operation examples on a device and judge the results",
}
"""One line of help per command; a module of the same name does the work."""
_INTERRUPTED = 128 + 2
"""As shells say of what SIGINT ended."""
_PIPE_CLOSED = 128 + 13
"""As shells say of what SIGPIPE ended."""
_WIDEST = 118
"""Columns of help."""


class Command(Protocol):
    """What a command's module offers."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options and arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit status."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Fills the paragraphs of a command's docstring to the terminal's width."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        return "\n\n".join(textwrap.fill(one, min(width, _WIDEST), break_on_hyphens=False) for one in paragraphs)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and for which lists such as -1,3 are values, no options."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  # whatever the base takes
        super().__init__(**options)
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and how it is meant or where to read that; exit status 2."""
        usage = f"{self.prog} --help shows the usage" if self.usage is None else self.format_usage().strip()
        self.exit(2, f"{self.prog}: {message} ({usage})\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print help, version or error; argparse's own passes over what cannot be written."""
        (print_text if file is sys.stdout else print_error)(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; usage errors and `--help` leave by SystemExit as argparse does."""
    _open_what_is_closed()
    arguments = sys.argv[1:] if argv is None else list(argv)
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    try:
        try:
            return _run(name, arguments)
        finally:
            flush_output()
    except UsageError as error:
        return _failed(name, str(error), status=2)
    except KeyboardInterrupt:
        return _failed(name, "interrupted", status=_INTERRUPTED)
    except Exception as error:
        if not _is_ours(error):
            raise
        if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
            sys.stdout = None  # Python must not try, and complain, again at exit
            if isinstance(error, BrokenPipeError):
                return _PIPE_CLOSED
        return _failed(name, _message(error), status=_status(error))


def _run(name: str, arguments: Sequence[str]) -> int:
    """Parse the arguments of a command and run it."""
    args, unknown = _parser(name).parse_known_args(arguments)
    if unknown:
        _Parser(prog=f"nnrt {name}").error(f"unrecognized arguments: {' '.join(unknown)}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a label that the terminal cannot show is no reason to stop
    show_warnings()
    command = _command(name)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `nnrt` starts: imports are over
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command.run(args)


def _open_what_is_closed() -> None:
    """Have nothing in the place of standard streams that are closed, where files would come that drivers print into."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # for good; `print` would turn to standard output


def _parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser; only the chosen command's module is imported for its options."""
    parser = _Parser(prog="nnrt", description="The Android Neural Networks stack on OpenCL.")
    parser.add_argument("--version", action="version", version=f"nnrt {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        module = _command(name) if name == chosen else None
        described = (module.__doc__ or line) if module else line
        command = commands.add_parser(name, help=line, description=described, formatter_class=_Help)
        if module is not None:
            module.add_arguments(command)
    return parser


def _command(name: str) -> Command:
    return cast("Command", importlib.import_module(f"{__name__}.{name}"))


def _is_ours(error: Exception) -> bool:
    """Tell whether an error is one that the message alone explains."""
    from nn_runtime.errors import NNError
    from nn_runtime.hal.types import HalError

    return isinstance(error, (NNError, HalError, OSError, MemoryError))


def _status(error: Exception) -> int:
    """Return the exit status: a device that is not there was asked for wrongly."""
    from nn_runtime.errors import SelectorError

    return 2 if isinstance(error, SelectorError) else 1


def _message(error: Exception) -> str:
    """Return the error's text; a file that cannot be opened comes first, as in other commands."""
    from nn_runtime.devices import SELECTOR_ARGUMENT
    from nn_runtime.errors import SelectorError

    if isinstance(error, SelectorError) and error.source == SELECTOR_ARGUMENT:
        return f"--device: {error.problem}"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{visible(str(error.filename)) or repr(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    return str(error)


def _failed(command: str, message: str, status: int = 1) -> int:
    """Print the error as one line; what follows its first line (a compiler's output) only where logging is on."""
    lines = message.strip().splitlines() or ["failed"]
    more = " ... (NNRT_VLOG=all shows the rest)" if len(lines) > 1 else ""
    if more and os.environ.get("NNRT_VLOG"):
        print_error(f"{message}\n")
    named = f"nnrt {command}".rstrip()
    print_error(visible(f"{named}: {' '.join(lines[0].split())}{more}") + "\n")
    return status

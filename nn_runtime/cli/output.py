# SPDX-License-Identifier: Apache-2.0
"""What the commands print: tables, JSON, times, and progress bars."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import sys
import textwrap
import threading
import time
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nn_runtime.hal.files import why_unwritable_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

STANDARD_OUTPUT = "standard output"
"""What errors call it, in the place of a file's name."""
_WIDTH = 100
_BAR_WIDTH = 30
_SILENT_SECONDS = 1.0
_REDRAW_SECONDS = 0.1
_GAP = "  "
_JOINERS = "\u200c\u200d"
"""Letters need them in Persian and Hindi, among others; a terminal obeys neither."""
_CLEAR = "\r\x1b[K"
"""Back to the first column, and erase the line."""


class UsageError(Exception):
    """The command line asks for something that makes no sense: exit status 2."""


def named_path(text: str) -> Path:
    """Return an argument that must be a path: of "" one would be made that is the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("wanted a path, got ''")
    return Path(text)


def new_file(text: str) -> Path:
    """Return an argument that must be the name of a file."""
    if not text or text.endswith(("/", os.sep)):
        raise argparse.ArgumentTypeError(f"wanted a file, got {text!r}")
    return Path(text)


def check_folder(option: str, path: str | os.PathLike[str]) -> None:
    """Check before the work that a file can be made where its result is to go; raises UsageError."""
    if Path(path).is_dir():
        raise UsageError(f"{option} {path}: is a folder, wanted a file")
    if not Path(path).parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {Path(path).parent}")
    reason = why_unwritable_file(Path(path))
    if reason is not None:
        raise UsageError(f"{option} {path}: cannot be written: {reason}")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table; columns named in `right` are aligned right, the last one is never padded."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    aligned = [
        [cell.rjust(width) if name in right else cell.ljust(width)
         for name, cell, width in zip(header, row, widths, strict=True)]
        for row in cells
    ]  # fmt: skip
    return [_GAP.join(row).rstrip() for row in aligned]


def wrapped(text: str, indent: int) -> list[str]:
    """Return a text in lines of at most 100 columns, those after the first indented; words stay whole."""
    return textwrap.wrap(text, _WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def visible(text: str) -> str:
    """Return a text with escapes in place of what a terminal would obey: names in files are anybody's."""
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter)[0] == "C" and letter not in _JOINERS
        else letter
        for letter in text
    )


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output, `visible`."""
    for line in lines:
        print_text(f"{visible(line)}\n")


def print_json(value: object) -> None:
    """Print a value as JSON; floats that JSON does not have become text."""
    print_text(f"{json.dumps(_plain(value), indent=1, allow_nan=False)}\n")


def print_text(text: str) -> None:
    """Print a text as it is to standard output, which is what the OSError of a failure names."""
    with _naming_output():
        print(text, end="")


def flush_output() -> None:
    """Write what is left of what was printed; raises OSError as `print_text`."""
    with _naming_output():
        if sys.stdout is not None:
            sys.stdout.flush()


@contextlib.contextmanager
def _naming_output() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from error


def print_error(text: str) -> None:
    """Print a text to standard error at once; where that cannot be written nobody can be told so."""
    with contextlib.suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def on_terminal() -> bool:
    """Tell whether standard error is there, and is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def progress(what: str, total: int) -> Iterator[int]:
    """Count from 0 to total - 1 with a bar on standard error, shown on a terminal after the first second.

    The bar disappears at the end, so that nothing of it is left between the lines of the result.
    """
    if not on_terminal():
        yield from range(total)
        return
    due = time.monotonic() + _SILENT_SECONDS
    shown = False
    try:
        for done in range(total):
            if time.monotonic() >= due:  # not every time: runs that are timed lie between
                shown = True
                show_progress(what, done, total)
                due = time.monotonic() + _REDRAW_SECONDS
            yield done
    finally:
        if shown:
            print_error(_CLEAR)


def show_progress(what: str, done: int, total: int) -> None:
    """Draw a bar on standard error, and erase it when all is done."""
    filled = _BAR_WIDTH * done // total
    bar = "#" * filled + " " * (_BAR_WIDTH - filled)
    print_error(_CLEAR if done == total else f"\r{what} [{bar}] {done}/{total}")


@contextlib.contextmanager
def busy(what: str) -> Iterator[None]:
    """Say on standard error what takes so long: on a terminal, from the first second to the end of the block."""
    if not on_terminal():
        yield
        return
    shown = threading.Event()

    def notify() -> None:
        shown.set()
        print_error(f"{what} ...")

    notice = threading.Timer(_SILENT_SECONDS, notify)
    notice.start()
    try:
        yield
    finally:
        notice.cancel()
        notice.join()
        if shown.is_set():
            print_error(_CLEAR)


class _Once(logging.Filter):
    """Lets every message pass once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


_once = _Once()


class _Line(logging.Formatter):
    """Makes a line of the command of a message, with its own name for what the library calls an argument."""

    def format(self, record: logging.LogRecord) -> str:
        from nn_runtime.devices import SELECTOR_ARGUMENT

        message = record.getMessage()
        of_argument = message.startswith(f"{SELECTOR_ARGUMENT}: ")
        return f"nnrt: {message.replace(SELECTOR_ARGUMENT, '--device', 1) if of_argument else message}"


def show_warnings() -> None:
    """Show warnings of the library as lines of the command, each once; where nothing else handles what is logged."""
    if logging.lastResort is not None:
        logging.lastResort.addFilter(_once)
        logging.lastResort.setFormatter(_Line())


@contextlib.contextmanager
def reported_here() -> Iterator[None]:
    """Keep the manager of devices from warning of what the command itself reports."""
    manager = logging.getLogger("nn_runtime.manager")

    def is_other(record: logging.LogRecord) -> bool:
        return record.levelno != logging.WARNING

    manager.addFilter(is_other)
    try:
        yield
    finally:
        manager.removeFilter(is_other)


def warn(message: str) -> None:
    """Print a line that is no failure to standard error, `visible`."""
    print_error(f"nnrt: {visible(message)}\n")

# SPDX-License-Identifier: Apache-2.0
"""What the commands print: tables, JSON, times, and progress bars."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BAR_WIDTH = 30
_SILENT_SECONDS = 1.0
_GAP = "  "


class UsageError(Exception):
    """The command line asks for something that makes no sense: exit status 2."""


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


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    for line in lines:
        print(line)


def print_json(value: object) -> None:
    """Print a value as JSON; numpy numbers and arrays become plain ones."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def duration_text(duration_ns: float | None) -> str:
    """Return a duration in the unit that suits it: `812 us`, `3.21 ms`, `1.53 s`; `-` where there is none."""
    if duration_ns is None:
        return "-"
    if duration_ns < 1e6:
        return f"{duration_ns / 1e3:.0f} us" if duration_ns >= 1e4 else f"{duration_ns / 1e3:.1f} us"
    if duration_ns < 1e9:
        return f"{duration_ns / 1e6:.2f} ms"
    return f"{duration_ns / 1e9:.2f} s"


def bytes_text(count: int) -> str:
    """Return a size in the unit that suits it: `980 bytes`, `3.4 MiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def progress(what: str, total: int) -> Iterator[int]:
    """Count from 0 to total - 1 with a bar on standard error, shown on a terminal after the first second.

    The bar disappears at the end, so that nothing of it is left between the lines of the result.
    """
    if not sys.stderr.isatty():
        yield from range(total)
        return
    start = time.monotonic()
    shown = False
    try:
        for done in range(total):
            if time.monotonic() - start >= _SILENT_SECONDS:
                shown = True
                filled = _BAR_WIDTH * done // total
                bar = "#" * filled + " " * (_BAR_WIDTH - filled)
                print(f"\r{what} [{bar}] {done}/{total}", end="", file=sys.stderr, flush=True)
            yield done
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Print a line that is no failure to standard error."""
    print(f"nnrt: {message}", file=sys.stderr)

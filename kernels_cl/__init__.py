# SPDX-License-Identifier: Apache-2.0
"""OpenCL C sources, as text with their #include lines resolved. Imports nothing but the standard library."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]*)"')
_NAME = re.compile(r"(?:[A-Za-z0-9_]+/)*[A-Za-z0-9_]+\.(?:cl|h)")


@functools.cache
def source(name: str) -> str:
    """The text of a packaged file ("softmax.cl") with each #include "common/x.h" put in place, each file once.

    Names count from this package's folder, in included files too. #line directives let a build error name the file.
    Raises FileNotFoundError, or ValueError for a name that is no plain path.
    """
    return resolve(name, _read)


@functools.cache
def names() -> tuple[str, ...]:
    """The kernel files, sorted: each builds alone."""
    return tuple(sorted(file.name for file in resources.files(__name__).iterdir() if file.name.endswith(".cl")))


def resolve(name: str, read: Callable[[str], str]) -> str:
    """As `source`, for files that `read` gets by name (FileNotFoundError where there is none)."""
    lines: list[str] = []
    _append(name, read, lines, set(), "")
    return "\n".join(lines) + "\n"


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _append(name: str, read: Callable[[str], str], lines: list[str], seen: set[str], included_by: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a kernel source{included_by}")
    seen.add(name)
    try:
        text = read(name)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no kernel source {name!r}{included_by}") from error
    lines.append(f'#line 1 "{name}"')
    for number, line in enumerate(text.splitlines(), 1):
        include = _INCLUDE.match(line) if "include" in line else None
        if include is None:
            lines.append(line)
            continue
        if include[1] not in seen:
            _append(include[1], read, lines, seen, f" (included by {name}, line {number})")
        lines.append(f'#line {number + 1} "{name}"')

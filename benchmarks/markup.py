# SPDX-License-Identifier: Apache-2.0
"""Pieces of Markdown documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [" | ".join(header), "|".join(["---"] * len(header)), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def link_to(title: str) -> str:
    """Return a link to the section of that title, by the anchor that GitHub gives it."""
    return f"[{title}](#{re.sub('[^a-z0-9 -]', '', title.lower()).replace(' ', '-')})"

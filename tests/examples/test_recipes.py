# SPDX-License-Identifier: Apache-2.0
"""The Python blocks of the documents, run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("document", "heading"), [("docs/RECIPES.md", "# Recipes"), ("README.md", "## The NDK level")])
def test_blocks_run(document: str, heading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text[text.index(f"{heading}\n") :], re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, document, "exec"), names)

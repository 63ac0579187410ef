# SPDX-License-Identifier: Apache-2.0
"""What tests of scripts share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts find each other, as when they are run."""
    monkeypatch.syspath_prepend(SCRIPTS)
    for path in SCRIPTS.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)

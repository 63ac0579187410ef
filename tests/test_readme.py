# SPDX-License-Identifier: Apache-2.0
"""README.md: its figures are those of the pages that they come from."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

ROOT = Path(__file__).parent.parent
_MEASURED = re.compile(r"\| (?P<file>\S+\.tflite) (?:\| [\d.]+ ){2}\| (?P<litert>[\d.]+) \| (?P<pocl>[\d.]+) \|")
"""A row of docs/NETWORKS.md: three times in ms, then the ratio of PoCL's to LiteRT's."""


def test_networks_that_are_faster() -> None:
    rows = (_MEASURED.match(line) for line in (ROOT / "docs" / "NETWORKS.md").read_text().splitlines())
    measured = [(float(row["litert"]), float(row["pocl"])) for row in rows if row]
    ratios = [ratio for _, ratio in measured]
    assert len(ratios) > 50
    faster, median = sum(ratio < 1 for ratio in ratios), statistics.median(ratios)
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"Of [{len(ratios)} networks](docs/NETWORKS.md), {faster} take less time on PoCL" in readme
    assert f"half of them less than {median:.2f} of it" in readme
    of_short = [ratio for litert_ms, ratio in measured if litert_ms <= 0.01]
    assert f"take LiteRT 10 us and less take {min(of_short):.1f} to {max(of_short):.1f} times as long" in readme

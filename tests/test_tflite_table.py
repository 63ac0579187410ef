# SPDX-License-Identifier: Apache-2.0
"""docs/TFLITE.md is what the importer says."""

from __future__ import annotations

from pathlib import Path

from tests.tflite_table import tflite_table

PAGE = Path(__file__).parent.parent / "docs" / "TFLITE.md"


def test_tflite_table_is_up_to_date() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == tflite_table(), "run: python -m tests.tflite_table > docs/TFLITE.md"


def test_every_operator_is_there_once() -> None:
    table, _, rest = tflite_table().partition("## Custom operators")
    refused = rest.partition("refused\n")[2]
    assert "| CONV_2D | " in table
    assert "| SHAPE | 1 | at import |" in table
    assert "`TFLite_Detection_PostProcess`" in rest
    assert "UNIQUE" in refused
    assert "CONV_2D" not in refused

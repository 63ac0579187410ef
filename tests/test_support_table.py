# SPDX-License-Identifier: Apache-2.0
"""docs/SUPPORT.md is what the signatures and drivers say."""

from __future__ import annotations

from pathlib import Path

from nn_runtime.codes import OperationCode
from tests.support_table import support_table

SUPPORT = Path(__file__).parent.parent / "docs" / "SUPPORT.md"


def test_support_table_is_up_to_date() -> None:
    written = SUPPORT.read_text(encoding="utf-8")
    assert written == support_table(), "run: python -m tests.support_table > docs/SUPPORT.md"


def test_every_operation_has_a_row() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in support_table().splitlines() if line.startswith("| ")]
    assert rows[2:] == [code.name for code in sorted(OperationCode)]

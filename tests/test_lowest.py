# SPDX-License-Identifier: Apache-2.0
"""The least versions of dependencies that `make test-lowest` installs are those that the package asks for."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def test_lowest_versions_are_those_of_the_package() -> None:
    table = re.search(r"^dependencies = \[(.*?)^\]", (_ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert table is not None
    wanted = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', table[1]))
    tested = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (_ROOT / "tests" / "lowest.txt").read_text(), re.MULTILINE))
    assert len(wanted) == table[1].count('"') // 2
    assert tested.keys() == wanted.keys()
    for name, version in tested.items():
        assert f"{version}.".startswith(f"{wanted[name]}."), name

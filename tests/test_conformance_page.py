# SPDX-License-Identifier: Apache-2.0
"""docs/CONFORMANCE.md: its sums are right, and every test that it names exists."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "CONFORMANCE.md"
SCOPE = 1303
"""Android's cases for versions 1.0 to 1.3."""
_GROUP = re.compile(r"\| (?P<name>[^|]+?) \| (?P<cases>\d+) \|[^|]*\| (?P<tests>[^|]*)\| (?P<have>\d+) \|")
_EXCEPTION = re.compile(r"\| (?P<name>[^|]+?) \| (?P<cases>\d+) \| [^|]+ \|")


@dataclass(frozen=True)
class Group:
    """One row: how many cases Android has, which of our tests are their equals, for how many cases."""

    section: str
    name: str
    cases: int
    tests: str
    have: int


def _sections() -> dict[str, list[str]]:
    """Return the lines below each heading, those before the first one under the empty name."""
    found: dict[str, list[str]] = {"": []}
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            found[line[3:]] = []
        else:
            found[list(found)[-1]].append(line)
    return found


def _rows(lines: list[str], pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Return the rows of the tables; raises ValueError for a row that the pattern does not fit."""
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| group", "| ---"))]
    matches = [(row, pattern.fullmatch(row)) for row in rows]
    wrong = [row for row, match in matches if match is None]
    if wrong:
        raise ValueError(f"{PAGE.name}: not a row of this table: {wrong}")
    return [match for _, match in matches if match is not None]


def _groups() -> list[Group]:
    return [
        Group(section, row["name"], int(row["cases"]), row["tests"], int(row["have"]))
        for section, lines in _sections().items()
        if section not in ("", "Totals")
        for row in _rows(lines, _GROUP)
    ]


def _exceptions() -> dict[str, int]:
    """Return how many cases of a group cannot be said in Python."""
    return {row["name"]: int(row["cases"]) for row in _rows(_sections()[""], _EXCEPTION)}


def _line(name: str, groups: list[Group]) -> str:
    cases, have = sum(group.cases for group in groups), sum(group.have for group in groups)
    lost = sum(_exceptions().get(group.name, 0) for group in groups)
    return f"| {name} | {cases} | {lost} | {have} | {100 * have / (cases - lost):.1f} % |"


def test_every_case_of_the_scope_is_in_one_group() -> None:
    groups = _groups()
    assert len({group.name for group in groups}) == len(groups)
    assert sum(group.cases for group in groups) == SCOPE


def test_nothing_is_counted_twice_or_excepted_from_nothing() -> None:
    exceptions = _exceptions()
    assert set(exceptions) <= {group.name for group in _groups()}
    for group in _groups():
        assert group.have + exceptions.get(group.name, 0) <= group.cases, group.name


def test_the_totals() -> None:
    groups = _groups()
    sections = list(dict.fromkeys(group.section for group in groups))
    wanted = [_line(name, [group for group in groups if group.section == name]) for name in sections]
    wanted.append(_line("all", groups))
    found = [line for line in _sections()["Totals"] if line.startswith("| ")][2:]
    assert found == wanted, "\n".join(["the totals should be:", *wanted])


def _file(name: str, before: Path | None) -> Path | None:
    """Return the test file of a name, which may leave out the folder of the one before in its row."""
    places = [ROOT / "tests" / "nn_runtime" / name, ROOT / name]
    places += [] if before is None else [before.parent / name]
    return next((place for place in places if place.is_file()), None)


def _missing(tests: str) -> list[str]:
    """Return the names of a row that are no test: `file.py`, `file.py::function`, `::function*`."""
    missing, file = [], None
    for name in re.findall(r"`([^`]+)`", tests):
        path, _, function = name.partition("::")
        if path.startswith("nnrt "):
            continue
        file = _file(path, file) if path else file
        found = "" if file is None else file.read_text()
        pattern = re.escape(function).replace(r"\*", r"\w*")
        if file is None or (function and not re.search(rf"^\s*def {pattern}\(", found, re.MULTILINE)):
            missing.append(name)
    return missing


@pytest.mark.parametrize("group", _groups(), ids=lambda group: group.name)
def test_the_tests_of_a_group_exist(group: Group) -> None:
    assert bool(group.have) == ("`" in group.tests)
    assert not _missing(group.tests)

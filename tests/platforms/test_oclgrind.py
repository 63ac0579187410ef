# SPDX-License-Identifier: Apache-2.0
"""No kernel reads or writes out of bounds, or races, on the interpreter that would see it (`--long`, Oclgrind)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kernels_cl
from tests.platforms import oclgrind

if TYPE_CHECKING:
    from tests.platforms.oclgrind import Findings

CASES_PER_LAUNCH = 3


@pytest.fixture(scope="module")
def findings(is_long: bool, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """The interpreter's findings over our cases, run once."""
    if not is_long:
        pytest.skip("takes minutes: --long")
    if oclgrind.library() is None:
        pytest.skip("Oclgrind is not installed (Debian: apt install oclgrind)")
    return oclgrind.run(tmp_path_factory.mktemp("oclgrind"), CASES_PER_LAUNCH)


def test_no_access_out_of_bounds_and_no_race(findings: Findings) -> None:
    assert not findings.reports


def test_results_are_right(findings: Findings) -> None:
    assert not findings.failures


def test_every_kernel_has_an_example(findings: Findings) -> None:
    sources = {name for name in kernels_cl.names() if name.endswith(".cl")}
    assert sorted(sources - {kernel.split()[0] for kernel in findings.launched}) == []
    assert sorted(set(findings.contained) - set(findings.launched)) == []


def test_the_interpreter_finds_planted_faults(findings: Findings) -> None:
    assert [name for name, report in findings.planted.items() if not report] == []
    assert list(findings.planted) == list(oclgrind.FAULTS)

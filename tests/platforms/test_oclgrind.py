# SPDX-License-Identifier: Apache-2.0
"""No kernel reads or writes out of bounds, races or reads what nobody wrote, on an interpreter (`--long`, Oclgrind)."""

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


@pytest.fixture(scope="module")
def uninitialized(is_long: bool, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """The same with the check for uninitialised values, which a repaired interpreter has."""
    if not is_long:
        pytest.skip("takes minutes: --long")
    if oclgrind.library() is None:
        pytest.skip("Oclgrind is not installed")
    try:
        return oclgrind.run(tmp_path_factory.mktemp("oclgrind"), 1, uninitialized=True)
    except RuntimeError as error:
        if oclgrind.NOT_REPAIRED in str(error):
            pytest.skip(f"{oclgrind.NOT_REPAIRED} (make oclgrind)")
        raise


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


def test_no_uninitialised_read(uninitialized: Findings) -> None:
    assert not uninitialized.reports
    assert not uninitialized.failures
    assert sorted(set(uninitialized.contained) - set(uninitialized.launched)) == []
    assert [name for name, report in uninitialized.planted.items() if not report] == []

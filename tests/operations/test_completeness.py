# SPDX-License-Identifier: Apache-2.0
"""Nothing is half there: every defined operation has a CPU function and cases."""

from __future__ import annotations

import pytest

from cpu_driver.operations import function_of
from nn_runtime.codes import CONTROL_FLOW, OperationCode
from nn_runtime.operations import definitions
from tests.operations.cases import all_cases

CODES = sorted(definitions())
NAMES = [OperationCode(code).name for code in CODES]


@pytest.mark.parametrize("code", CODES, ids=NAMES)
def test_operation_has_a_cpu_function(code: int) -> None:
    # The CPU driver's graph runs IF and WHILE itself.
    assert (function_of(code) is not None) != (code in CONTROL_FLOW)


@pytest.mark.parametrize("code", CODES, ids=NAMES)
def test_operation_has_cases(code: int) -> None:
    assert any(case.operation == code for case in all_cases())


def test_every_data_type_of_an_operation_has_a_case_or_is_covered_by_its_family() -> None:
    used = {(case.operation, code) for case in all_cases() for code in case.types}
    for code, entry in definitions().items():
        assert any((code, data_type) in used for data_type in entry.data_types) or code in CONTROL_FLOW


def test_case_names_are_unique() -> None:
    names = [(case.operation, case.name) for case in all_cases()]
    assert len(set(names)) == len(names)

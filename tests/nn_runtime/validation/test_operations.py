# SPDX-License-Identifier: Apache-2.0
"""Each operation takes what its rows say and nothing that differs a little (AOSP TestValidateOperations)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nn_runtime.codes import OperationCode, ResultCode
from tests.nn_runtime.validation.cases import ANY_TENSOR, REPEATED_OUTPUTS, TAKEN
from tests.nn_runtime.validation.signatures import Signature, recounted, refusal, retyped, with_ranks
from tests.nn_runtime.validation.spoiled_cases import REFUSED, UNSPOILED

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROWS = [signature for signatures in TAKEN.values() for signature in signatures]
TYPES = {signature.types() for signature in _ROWS}
TYPES_AND_RANKS = {signature.types_and_ranks() for signature in _ROWS}


def _changes(signature: Signature) -> Iterator[tuple[str, Signature, bool]]:
    """Yield what is changed, the changed list, and whether the rows have it."""
    for what, changed in recounted(signature):
        if signature.code not in REPEATED_OUTPUTS or "output" not in what:
            yield what, changed, changed.types_and_ranks() in TYPES_AND_RANKS
    for what, changed in retyped(signature):
        if not what.startswith(f"input {ANY_TENSOR.get(signature.code)} is"):
            yield what, changed, changed.types() in TYPES


def _wrong_answers(signature: Signature) -> list[str]:
    """Return every change of one list to which the runtime's answer is not that of the rows."""
    wrong = []
    for what, changed, is_taken in _changes(signature):
        error = refusal(changed)
        if is_taken != (error is None):
            wrong.append(f"{what}: {error or 'taken'}")
        elif error is not None and error.code != ResultCode.BAD_DATA:
            wrong.append(f"{what}: {error.code!r}")
    return wrong


@pytest.mark.parametrize("name", list(TAKEN))
def test_an_operation_takes_its_operands_and_no_others(name: str) -> None:
    for signature in TAKEN[name]:
        assert refusal(signature) is None
        assert _wrong_answers(signature) == []
        for rule in signature.ranks:
            for rank in rule.good():
                assert refusal(with_ranks(signature, rule, rank)) is None, f"rank {rank}"
            for rank in rule.bad():
                error = refusal(with_ranks(signature, rule, rank))
                assert error is not None and error.code == ResultCode.BAD_DATA, f"rank {rank}"


@pytest.mark.parametrize("name", list(REFUSED))
def test_quantisation_and_ranks_that_do_not_fit_are_refused(name: str) -> None:
    for signature in REFUSED[name]:
        error = refusal(signature)
        assert error is not None and error.code == ResultCode.BAD_DATA


@pytest.mark.parametrize("name", list(UNSPOILED))
def test_they_are_taken_before_they_are_spoiled(name: str) -> None:
    for signature in UNSPOILED[name]:
        assert refusal(signature) is None


def test_every_operation_has_a_row() -> None:
    assert set(OperationCode) - {signature.code for signature in _ROWS} == {OperationCode.IF, OperationCode.WHILE}


def test_every_case_of_android_has_a_row() -> None:
    """All but IF and WHILE, which `test_control_flow.py` has."""
    assert len({**TAKEN, **REFUSED, **UNSPOILED}) == 306 - 2

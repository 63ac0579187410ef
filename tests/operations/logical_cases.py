# SPDX-License-Identifier: Apache-2.0
"""Cases of LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import BOOL8, Case, of

_FIRST, _SECOND = of(BOOL8, (2, 1), [0, 1]), of(BOOL8, (1, 1, 2), [0, 1])

CASES = (
    Case(OperationCode.LOGICAL_AND, "table", (_FIRST, _SECOND), (of(BOOL8, (1, 2, 2), [0, 0, 0, 1]),), (BOOL8,)),
    Case(OperationCode.LOGICAL_OR, "table", (_FIRST, _SECOND), (of(BOOL8, (1, 2, 2), [0, 1, 1, 1]),), (BOOL8,)),
    Case(
        OperationCode.LOGICAL_NOT,
        "five_axes",
        (of(BOOL8, (1, 1, 3, 1, 1), [1, 0, 1]),),
        (of(BOOL8, (1, 1, 3, 1, 1), [0, 1, 0]),),
        (BOOL8,),
    ),
)

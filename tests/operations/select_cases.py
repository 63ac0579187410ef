# SPDX-License-Identifier: Apache-2.0
"""Cases of SELECT."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import ALL, BOOL8, INT32, Case, of, tensor

_CONDITION = of(BOOL8, (2, 1, 2), [1, 0, 0, 1])

CASES = (
    Case(
        OperationCode.SELECT,
        "scales_differ",
        (_CONDITION, tensor((2, 1, 2), [1, 2, 3, 4], 0.25, 100), tensor((2, 1, 2), [-1, -2, -3, -4], 0.5, 10)),
        (tensor((2, 1, 2), [1, -2, -3, 4], 0.125, 60),),
        ALL,
    ),
    Case(
        OperationCode.SELECT,
        "integers",
        (_CONDITION, of(INT32, (2, 1, 2), [1, 2, 3, 2**31 - 1]), of(INT32, (2, 1, 2), [-1, -(2**31), -3, -4])),
        (of(INT32, (2, 1, 2), [1, -(2**31), -3, 2**31 - 1]),),
        (INT32,),
    ),
)

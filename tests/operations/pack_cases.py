# SPDX-License-Identifier: Apache-2.0
"""Cases of PACK, written out."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, Case, integer, of, tensor

_FIRST, _SECOND, _THIRD = (tensor((1, 2), [n, n + 0.5], 0.5, 9) for n in (1, 3, 5))

CASES = (
    Case(
        OperationCode.PACK,
        "front",
        (integer(0), _FIRST, _SECOND, _THIRD),
        (tensor((3, 1, 2), [1, 1.5, 3, 3.5, 5, 5.5], 0.5, 9),),
    ),
    Case(
        OperationCode.PACK,
        "back",
        (integer(2), _FIRST, _SECOND, _THIRD),
        (tensor((1, 2, 3), [1, 3, 5, 1.5, 3.5, 5.5], 0.5, 9),),
    ),
    Case(
        OperationCode.PACK,
        "one_of_integers",
        (integer(1), of(INT32, (2,), [2**30 + 1, -3])),
        (of(INT32, (2, 1), [2**30 + 1, -3]),),
        (INT32,),
    ),
)

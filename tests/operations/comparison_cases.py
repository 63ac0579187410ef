# SPDX-License-Identifier: Apache-2.0
"""Cases of EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, decided by Python's operators."""

from __future__ import annotations

import operator

from nn_runtime.codes import OperationCode
from tests.operations.cases import BOOL8, INT32, QUANT8, SIGNED, Case, of, tensor

_COMPARISONS = {
    OperationCode.EQUAL: operator.eq,
    OperationCode.NOT_EQUAL: operator.ne,
    OperationCode.GREATER: operator.gt,
    OperationCode.GREATER_EQUAL: operator.ge,
    OperationCode.LESS: operator.lt,
    OperationCode.LESS_EQUAL: operator.le,
}
_ROWS, _COLUMNS = (-1.0, 0.0, 2.5), (0.0, 2.5)
_CLOSE = (2**24, 2**24 + 1, -(2**31))

CASES = (
    *(
        Case(
            code,
            "broadcast",
            (tensor((3, 1), _ROWS), tensor((1, 1, 2), _COLUMNS, 0.25, 3)),
            (of(BOOL8, (1, 3, 2), [compare(row, column) for row in _ROWS for column in _COLUMNS]),),
        )
        for code, compare in _COMPARISONS.items()
    ),
    *(
        Case(
            code,
            "large_integers",
            (of(INT32, (3,), _CLOSE), of(INT32, (1,), [2**24 + 1])),
            (of(BOOL8, (3,), [compare(value, 2**24 + 1) for value in _CLOSE]),),
            (INT32,),
        )
        for code, compare in _COMPARISONS.items()
    ),
    *(
        Case(
            code,
            "truth",
            (of(BOOL8, (4,), [0, 0, 1, 1]), of(BOOL8, (4,), [0, 1, 0, 1])),
            (of(BOOL8, (4,), [compare(0, 0), compare(0, 1), compare(1, 0), compare(1, 1)]),),
            (BOOL8,),
        )
        for code, compare in _COMPARISONS.items()
    ),
    *(
        Case(
            code,
            "five_axes",
            (tensor((1, 2, 1, 1, 2), [1, 2, 3, 4]), tensor((2,), [1, 4])),
            (of(BOOL8, (1, 2, 1, 1, 2), [compare(1, 1), compare(2, 4), compare(3, 1), compare(4, 4)]),),
            (QUANT8, SIGNED),
        )
        for code, compare in _COMPARISONS.items()
    ),
)

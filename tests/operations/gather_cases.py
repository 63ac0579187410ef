# SPDX-License-Identifier: Apache-2.0
"""Cases of GATHER, EMBEDDING_LOOKUP and HASHTABLE_LOOKUP, written out."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import ALL, INT32, QUANT8, Case, integer, of, tensor

_TABLE = tensor((2, 3), [1, 2, 3, 4, 5, 6])
_ROWS = of(INT32, (3, 2), [1, -2, 2**30, 4, 5, 6])

CASES = (
    Case(
        OperationCode.GATHER,
        "columns",
        (_TABLE, integer(-1), of(INT32, (2, 2), [2, 0, 1, 2])),
        (tensor((2, 2, 2), [3, 1, 2, 3, 6, 4, 5, 6]),),
    ),
    Case(OperationCode.GATHER, "rows", (_TABLE, integer(0), of(INT32, (1,), [1])), (tensor((1, 3), [4, 5, 6]),)),
    Case(
        OperationCode.GATHER,
        "integers",
        (_ROWS, integer(0), of(INT32, (2,), [1, 1])),
        (of(INT32, (2, 2), [2**30, 4, 2**30, 4]),),
        (INT32,),
    ),
    Case(
        OperationCode.EMBEDDING_LOOKUP,
        "rows",
        (of(INT32, (3,), [1, 0, 1]), tensor((2, 1, 2), [1, 2, 3, 4])),
        (tensor((3, 1, 2), [3, 4, 1, 2, 3, 4]),),
        ALL,
    ),
    Case(
        OperationCode.EMBEDDING_LOOKUP,
        "integers",
        (of(INT32, (2,), [2, 1]), _ROWS),
        (of(INT32, (2, 2), [5, 6, 2**30, 4]),),
        (INT32,),
    ),
    *(
        Case(
            OperationCode.HASHTABLE_LOOKUP,
            f"hits_and_misses_{code.name.lower()}",
            (
                of(INT32, (4,), [1234, -292, -11, 99999]),
                of(INT32, (3,), [-11, 0, 1234]),
                of(code, (3, 2), [1, 2, 3, 4, 5, 6], *quantization),
            ),
            (
                of(code, (4, 2), [5, 6, 0, 0, 1, 2, 0, 0], *quantization),
                of(QUANT8, (4,), [1, 0, 1, 0], 1.0, 0),
            ),
            (code,),
            exact=True,
        )
        for code, quantization in ((QUANT8, (0.5, 7)), (INT32, ()))
    ),
)

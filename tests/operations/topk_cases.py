# SPDX-License-Identifier: Apache-2.0
"""Cases of TOPK_V2, written out: of equal values the one with the larger index comes first."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, Case, integer, of, tensor

CASES = (
    Case(
        OperationCode.TOPK_V2,
        "ties",
        (tensor((2, 1, 5), [3, 1, 3, 2, 3, -1, -1, -2, -1, -3]), integer(3)),
        (tensor((2, 1, 3), [3, 3, 3, -1, -1, -1]), of(INT32, (2, 1, 3), [4, 2, 0, 3, 1, 0])),
        exact=True,
    ),
    Case(
        OperationCode.TOPK_V2,
        "all_of_a_vector",
        (tensor((4,), [1, 4, -2, 3]), integer(4)),
        (tensor((4,), [4, 3, 1, -2]), of(INT32, (4,), [1, 3, 0, 2])),
        exact=True,
    ),
    Case(
        OperationCode.TOPK_V2,
        "integers",
        (of(INT32, (1, 3), [2**24, -(2**31), 2**24 + 1]), integer(2)),
        (of(INT32, (1, 2), [2**24 + 1, 2**24]), of(INT32, (1, 2), [2, 0])),
        (INT32,),
    ),
)

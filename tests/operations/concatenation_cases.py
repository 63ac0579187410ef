# SPDX-License-Identifier: Apache-2.0
"""Cases of CONCATENATION and SPLIT, written out."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, QUANT8, SIGNED, Case, integer, of, tensor

CONCATENATION, SPLIT = OperationCode.CONCATENATION, OperationCode.SPLIT

FIRST, SECOND, THIRD = [1.0, 2.0, 3.0, 4.0], [-1.0, -2.0], [5.5, 6.5]

CASES = (
    Case(
        CONCATENATION,
        "rows",
        (tensor((2, 2), FIRST), tensor((1, 2), SECOND), tensor((1, 2), THIRD), integer(0)),
        (tensor((4, 2), FIRST + SECOND + THIRD),),
    ),
    Case(
        CONCATENATION,
        "columns",
        (tensor((2, 1), SECOND), tensor((2, 2), FIRST), tensor((2, 1), THIRD), integer(1)),
        (tensor((2, 4), [-1.0, 1.0, 2.0, 5.5, -2.0, 3.0, 4.0, 6.5]),),
    ),
    Case(CONCATENATION, "alone", (tensor((2, 2), FIRST), integer(1)), (tensor((2, 2), FIRST),)),
    Case(
        CONCATENATION,
        "middle_of_four",
        (tensor((1, 2, 1, 2), FIRST), tensor((1, 1, 1, 2), SECOND), integer(1)),
        (tensor((1, 3, 1, 2), FIRST + SECOND),),
    ),
    # Real 1, 2.25, -100 beside 0.5: steps of 0.5 from zero point 10, cut at its range; ties away from zero.
    Case(
        CONCATENATION,
        "requantized",
        (of(QUANT8, (3,), [104, 109, 0], 0.25, 100), of(QUANT8, (1,), [11], 0.5, 10), integer(0)),
        (of(QUANT8, (4,), [12, 15, 0, 11], 0.5, 10),),
        (QUANT8,),
        exact=True,
    ),
    Case(
        CONCATENATION,
        "requantized_signed",
        (of(SIGNED, (3,), [-24, -19, -128], 0.25, -28), of(SIGNED, (1,), [-117], 0.5, -118), integer(0)),
        (of(SIGNED, (4,), [-116, -113, -128, -117], 0.5, -118),),
        (SIGNED,),
        exact=True,
    ),
    Case(
        SPLIT,
        "rows",
        (tensor((4, 2), FIRST + SECOND + THIRD), integer(0), integer(2)),
        (tensor((2, 2), FIRST), tensor((2, 2), SECOND + THIRD)),
    ),
    Case(
        SPLIT,
        "last_axis",
        (tensor((2, 1, 3), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), integer(-1), integer(3)),
        (tensor((2, 1, 1), [1.0, 4.0]), tensor((2, 1, 1), [2.0, 5.0]), tensor((2, 1, 1), [3.0, 6.0])),
    ),
    Case(SPLIT, "alone", (tensor((2, 2), FIRST), integer(0), integer(1)), (tensor((2, 2), FIRST),)),
    Case(
        SPLIT,
        "integers",
        (of(INT32, (4,), [1, -2, 2**30, 4]), integer(0), integer(2)),
        (of(INT32, (2,), [1, -2]), of(INT32, (2,), [2**30, 4])),
        (INT32,),
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""Cases of FILL."""

from __future__ import annotations

from dataclasses import replace

from nn_runtime.codes import OperandCode, OperationCode
from tests.operations.cases import FLOAT16, FLOAT32, INT32, Argument, Case, integer, ints, of


def scalar(code: OperandCode, value: float) -> Argument:
    return Argument((), [value], code, 0.0, 0, constant=True)


CASES = (
    Case(OperationCode.FILL, "integers", (ints([2, 3]), integer(-7)), (of(INT32, (2, 3), [-7] * 6),), (INT32,)),
    Case(
        OperationCode.FILL,
        "float32_at_run_time",
        (replace(ints([1, 2, 1, 1, 2]), constant=False), scalar(OperandCode.FLOAT32, 2.5)),
        (of(FLOAT32, (1, 2, 1, 1, 2), [2.5] * 4),),
        (INT32,),
    ),
    Case(
        OperationCode.FILL,
        "float16",
        (ints([3]), scalar(OperandCode.FLOAT16, -0.25)),
        (of(FLOAT16, (3,), [-0.25] * 3),),
        (INT32,),
    ),
)

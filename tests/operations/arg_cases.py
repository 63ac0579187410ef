# SPDX-License-Identifier: Apache-2.0
"""Cases of ARGMAX and ARGMIN."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, Case, integer, of, tensor

_INPUT = tensor((2, 3), [1, 3, 3, 7, -2, 5])

CASES = (
    Case(OperationCode.ARGMAX, "first_of_equals", (_INPUT, integer(-1)), (of(INT32, (2,), [1, 0]),)),
    Case(OperationCode.ARGMAX, "first_axis", (_INPUT, integer(0)), (of(INT32, (3,), [1, 0, 1]),)),
    Case(
        OperationCode.ARGMAX,
        "vector",
        (tensor((4,), [-2, -1.5, -8, -1.5]), integer(0)),
        (of(INT32, (1,), [1]),),
    ),
    Case(
        OperationCode.ARGMAX,
        "middle_axis_of_integers",
        (of(INT32, (1, 3, 2), [1, -(2**31), 2**24 + 1, 5, 2**24, 6]), integer(1)),
        (of(INT32, (1, 2), [1, 2]),),
        (INT32,),
    ),
    Case(OperationCode.ARGMIN, "first_axis", (_INPUT, integer(0)), (of(INT32, (3,), [0, 1, 0]),)),
    Case(
        OperationCode.ARGMIN,
        "first_of_equals",
        (tensor((2, 3), [3, 1, 1, -2, -2, 5]), integer(-1)),
        (of(INT32, (2,), [1, 0]),),
    ),
    Case(
        OperationCode.ARGMIN,
        "middle_axis_of_integers",
        (of(INT32, (1, 3, 2), [1, 2**31 - 1, -(2**24) - 1, 5, -(2**24), 6]), integer(1)),
        (of(INT32, (1, 2), [1, 1]),),
        (INT32,),
    ),
)

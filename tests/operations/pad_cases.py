# SPDX-License-Identifier: Apache-2.0
"""Cases of PAD and PAD_V2, written out."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, QUANT8, SIGNED, Case, integer, ints, of, real, tensor

PAD, PAD_V2 = OperationCode.PAD, OperationCode.PAD_V2
VALUES = [1.0, 2.0, 3.0, 4.0]
AROUND = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0]

CASES = (
    Case(PAD, "matrix", (tensor((2, 2), VALUES), ints([1, 0, 1, 1], (2, 2))), (tensor((3, 4), AROUND),)),
    Case(PAD, "vector", (tensor((4,), VALUES), ints([0, 2], (1, 2))), (tensor((6,), [*VALUES, 0.0, 0.0]),)),
    Case(
        PAD,
        "four_axes",
        (tensor((1, 2, 2, 1), VALUES, zero_point=7), ints([0, 0, 1, 0, 0, 1, 0, 1], (4, 2))),
        (
            tensor(
                (1, 3, 3, 2),
                [0.0] * 6 + [1.0, 0.0, 2.0, 0.0, 0.0, 0.0] + [3.0, 0.0, 4.0, 0.0, 0.0, 0.0],
                zero_point=7,
            ),
        ),
    ),
    Case(PAD, "nothing", (tensor((2, 2), VALUES), ints([0, 0, 0, 0], (2, 2))), (tensor((2, 2), VALUES),)),
    Case(
        PAD_V2,
        "real_value",
        (tensor((2, 2), VALUES), ints([0, 1, 1, 0], (2, 2)), real(-2.5)),
        (tensor((3, 3), [-2.5, 1.0, 2.0, -2.5, 3.0, 4.0, -2.5, -2.5, -2.5]),),
        FLOATS,
    ),
    Case(
        PAD_V2,
        "code_value",
        (of(QUANT8, (2,), [200, 3], 0.5, 100), ints([1, 2], (1, 2)), integer(9)),
        (of(QUANT8, (5,), [9, 200, 3, 9, 9], 0.5, 100),),
        (QUANT8,),
        exact=True,
    ),
    Case(
        PAD_V2,
        "signed_code_value",
        (of(SIGNED, (2,), [72, -125], 0.5, -28), ints([1, 2], (1, 2)), integer(-9)),
        (of(SIGNED, (5,), [-9, 72, -125, -9, -9], 0.5, -28),),
        (SIGNED,),
        exact=True,
    ),
)

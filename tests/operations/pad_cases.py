# SPDX-License-Identifier: Apache-2.0
"""Cases of PAD, PAD_V2 and MIRROR_PAD, written out."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, INT32, QUANT8, SIGNED, Case, integer, ints, of, real, tensor

PAD, PAD_V2 = OperationCode.PAD, OperationCode.PAD_V2
MIRROR_PAD, REFLECT, SYMMETRIC = OperationCode.MIRROR_PAD, integer(0), integer(1)
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
    Case(
        MIRROR_PAD,
        "reflect",
        (tensor((2, 3), [1, 2, 3, 4, 5, 6]), ints([1, 0, 2, 1], (2, 2)), REFLECT),
        (tensor((3, 6), [6, 5, 4, 5, 6, 5, 3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5]),),
    ),
    Case(
        MIRROR_PAD,
        "symmetric",
        (tensor((2, 3), [1, 2, 3, 4, 5, 6]), ints([0, 2, 1, 3], (2, 2)), SYMMETRIC),
        (tensor((4, 7), [1, 1, 2, 3, 3, 2, 1, 4, 4, 5, 6, 6, 5, 4, 4, 4, 5, 6, 6, 5, 4, 1, 1, 2, 3, 3, 2, 1]),),
    ),
    Case(
        MIRROR_PAD,
        "integers_of_five_axes",
        (of(INT32, (1, 1, 1, 1, 2), [2**30 + 1, -7]), ints([0, 0] * 4 + [1, 1], (5, 2)), REFLECT),
        (of(INT32, (1, 1, 1, 1, 4), [-7, 2**30 + 1, -7, 2**30 + 1]),),
        (INT32,),
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""Cases of ADD, SUB, MUL, DIV."""

from __future__ import annotations

from nn_runtime.codes import FuseCode, OperationCode
from tests.operations.cases import ALL, FLOATS, INT32, Case, integer, of, tensor

_NONE, _RELU6 = integer(FuseCode.NONE), integer(FuseCode.RELU6)

CASES = (
    Case(
        OperationCode.ADD,
        "same_shape",
        (tensor((2, 2), [1, -2, 3, 4.5]), tensor((2, 2), [0.5, 1, -3, 2]), _NONE),
        (tensor((2, 2), [1.5, -1, 0, 6.5]),),
        ALL,
    ),
    Case(
        OperationCode.ADD,
        "broadcast_relu6",
        (tensor((1, 2, 3), [1, -2, 3, 4, 5, 6]), tensor((3,), [1, 1, -4]), _RELU6),
        (tensor((1, 2, 3), [2, 0, 0, 5, 6, 2]),),
    ),
    Case(
        OperationCode.ADD,
        "scales_differ",
        (tensor((4,), [1, 2, 3, -4], 0.25, 100), tensor((4,), [1, -1, 0.5, 0], 0.5, 128), _NONE),
        (tensor((4,), [2, 1, 3.5, -4], 0.125, 120),),
    ),
    Case(
        OperationCode.SUB,
        "broadcast_first",
        (tensor((1,), [2]), tensor((2, 2), [1, 2, -3, 0.5]), _NONE),
        (tensor((2, 2), [1, 0, 5, 1.5]),),
    ),
    Case(
        OperationCode.SUB,
        "int32",
        (of(INT32, (3,), [5, -7, 2**30]), of(INT32, (3,), [7, -7, 1]), _NONE),
        (of(INT32, (3,), [-2, 0, 2**30 - 1]),),
        (INT32,),
    ),
    Case(
        OperationCode.MUL,
        "broadcast_column",
        (tensor((2, 2), [1, 2, -3, 4]), tensor((2, 1), [2, -1]), _NONE),
        (tensor((2, 2), [2, 4, 3, -4], 1.0, 100),),
    ),
    Case(
        OperationCode.MUL,
        "relu1",
        (tensor((4,), [1, 0.5, -3, 0.5]), tensor((4,), [2, 1, 1, -0.5]), integer(FuseCode.RELU1)),
        (tensor((4,), [1, 0.5, -1, -0.25], 0.3, 128),),
    ),
    Case(
        OperationCode.DIV,
        "values",
        (tensor((4,), [1, 9, -3, 5]), tensor((4,), [2, 3, 1.5, -4]), _NONE),
        (tensor((4,), [0.5, 3, -2, -1.25]),),
        FLOATS,
    ),
    Case(
        OperationCode.DIV,
        "int32_rounds_down",
        (of(INT32, (4,), [-5, 5, 7, -8]), of(INT32, (4,), [2, 2, -2, -2]), _NONE),
        (of(INT32, (4,), [-3, 2, -4, 4]),),
        (INT32,),
    ),
)

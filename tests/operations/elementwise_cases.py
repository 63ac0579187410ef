# SPDX-License-Identifier: Apache-2.0
"""Cases of ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, PRELU; `litert*`: results of LiteRT's reference kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperationCode
from tests.operations.cases import ALL, FLOAT32, FLOATS, INT32, QUANT8, SIGNED, Case, integer, of, stored, tensor

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions

_NONE, _RELU6 = integer(FuseCode.NONE), integer(FuseCode.RELU6)

_FIRST = (1.5, -2.0, 0.25, 8.0, -0.5, 3.0, -7.0, 0.125, 4.0, 2.5, -1.25, 6.0)
_SECOND = (0.5, -4.0, 2.0, -0.25, 1.0, 8.0)
_SHAPES: dict[str, tuple[Dimensions, Dimensions]] = {
    "inner_and_outer": ((2, 1, 3), (1, 2, 1)),
    "outer": ((2, 2, 3), (2, 1, 1)),
    "rank_differs": ((2, 3), (2, 1, 1, 3)),
}

_LITERT_FIRST = (
    "f1a0afe594c6d5390e4c48dfe9017fd221cc1e77d14d5747b841fd717a81958d82fececab39f57fd7737d829db9c1d0b"
    "71092483f877ceead2a17083447f613f"
)
_LITERT_SECOND = "fe031831f8b1e133b85e7d009ed4a927"
_LITERT = (
    (
        OperationCode.ADD,
        FuseCode.NONE,
        "f64c6195abb4d41128323c7cc72a7982546e0040da56721cac29c826718d8a4da0957980c39572a97921ab00bca22d00"
        "92000049f876ce9ac0745b34478b6210",
    ),
    (
        OperationCode.ADD,
        FuseCode.RELU,
        "f6656595abb4d4656565657cc7657982656e6565da657265ac65c865718d8a65a0957980c39572a97965ab65bca26565"
        "92656565f876ce9ac0746565658b6565",
    ),
    (
        OperationCode.ADD,
        FuseCode.RELU1,
        "7e4c617e7e7e7e4c4c4c4c7c7e4c797e546e4c4c7e56724c7e4c7e4c717e7e4d7e7e797e7e7e727e794c7e4c7e7e4c4c"
        "7e4c4c4c7e767e7e7e745b4c4c7e624c",
    ),
    (
        OperationCode.ADD,
        FuseCode.RELU6,
        "f6656595abb4d4656565657cc7657982656e6565da657265ac65c865718d8a65a0957980c39572a97965ab65bca26565"
        "92656565f876ce9ac0746565658b6565",
    ),
    (
        OperationCode.SUB,
        FuseCode.NONE,
        "95c1c3e24f948b5c025948f3b70060d800e3538d7e362a678650d59d615071a33fffdbce67762af45449b866ac65143e"
        "314c58979d5786e69a9b68ab374e4966",
    ),
    (
        OperationCode.SUB,
        FuseCode.RELU6,
        "95c1c3e265948b65656565f3b76565d865e3658d7e6565678665d59d656571a365fbdbce677665f46565b866ac656565"
        "656565979d6586e69a9b68ab65656566",
    ),
    (
        OperationCode.MUL,
        FuseCode.NONE,
        "ff170c00918cd1ab297e6e00810069000000ea63e851439b8c854a6c6670714579000000bd794300668b51f17d8a43f2"
        "5fffe154ff66c9009b4a664b596e5dad",
    ),
    (
        OperationCode.MUL,
        FuseCode.RELU1,
        "7e4c4c4c7e7e7e7e4c7e6e4c7e4c694c4c4c7e637e514c7e7e7e4c6c6670714c794c4c4c7e794c4c667e517e7d7e4c7e"
        "5f7e7e547e667e4c7e4c664c596e5d7e",
    ),
)


def _exact(operation: OperationCode, first: Array, second: Array) -> Array:
    if operation == OperationCode.ADD:
        return first + second
    if operation == OperationCode.SUB:
        return first - second
    return first * second if operation == OperationCode.MUL else first / second


def _broadcast_case(operation: OperationCode, shape: str) -> Case:
    first_dims, second_dims = _SHAPES[shape]
    first, second = np.resize(_FIRST, first_dims), np.resize(_SECOND, second_dims)
    result = _exact(operation, first, second)
    return Case(
        operation,
        shape,
        (tensor(first_dims, first.reshape(-1)), tensor(second_dims, second.reshape(-1)), _NONE),
        (tensor(result.shape, result.reshape(-1)),),
        FLOATS,
    )


CASES = (
    *(
        _broadcast_case(operation, shape)
        for operation in (OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV)
        for shape in _SHAPES
    ),
    *(
        Case(
            operation,
            f"litert_{activation.name.lower()}",
            (
                stored((1, 1, 4, 16), _LITERT_FIRST, 0.031, 117),
                stored((16,), _LITERT_SECOND, 0.017, 140),
                integer(activation),
            ),
            (stored((1, 1, 4, 16), codes, 0.04, 101),),
            (QUANT8, SIGNED),
            exact=True,
        )
        for operation, activation, codes in _LITERT
    ),
    Case(
        OperationCode.ADD,
        "int32_wraps",
        (of(INT32, (2,), [2**31 - 1, -5]), of(INT32, (2,), [1, 2]), _NONE),
        (of(INT32, (2,), [-(2**31), -3]),),
        (INT32,),
    ),
    Case(
        OperationCode.MUL,
        "int32_wraps",
        (of(INT32, (2, 1), [2**30, -5]), of(INT32, (2,), [4, 3]), _NONE),
        (of(INT32, (2, 2), [0, 3 * 2**30 - 2**32, -20, -15]),),
        (INT32,),
    ),
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
    *(
        case
        for operation, choose in ((OperationCode.MAXIMUM, max), (OperationCode.MINIMUM, min))
        for case in (
            Case(
                operation,
                "scales_differ",
                (tensor((2, 3), _FIRST[:6], 0.25, 100), tensor((1, 1, 3), _SECOND[:3], 0.5, 10)),
                (tensor((1, 2, 3), [choose(x, y) for x, y in zip(_FIRST, _SECOND[:3] * 2, strict=False)], 0.125, 60),),
            ),
            Case(
                operation,
                "integers_of_five_axes",
                (of(INT32, (1, 1, 1, 2, 1), [2**24, -(2**31)]), of(INT32, (2,), [2**24 + 1, -5])),
                (
                    of(
                        INT32,
                        (1, 1, 1, 2, 2),
                        [choose(x, y) for x in (2**24, -(2**31)) for y in (2**24 + 1, -5)],
                    ),
                ),
                (INT32,),
            ),
        )
    ),
    Case(
        OperationCode.POW,
        "values",
        (tensor((4,), [2, 9, -3, 0.25]), tensor((4,), [3, 0.5, 3, -1.5])),
        (tensor((4,), [8, 3, -27, 8]),),
        FLOATS,
    ),
    Case(
        OperationCode.POW,
        "broadcast",
        (tensor((2, 1, 1, 1, 1), [2, 4]), tensor((3,), [0, -1, 2.5])),
        (tensor((2, 1, 1, 1, 3), [1, 0.5, 2**2.5, 1, 0.25, 32]),),
        FLOATS,
    ),
    # Whether or not a device takes numbers below the least normal one for zeros.
    Case(
        OperationCode.POW,
        "tiny_bases",
        (tensor((3, 1), [1e-40, -1e-40, 1e-45]), tensor((20,), [1, 2, 3, 4] * 5)),
        (tensor((3, 20), [0] * 60),),
        (FLOAT32,),
    ),
    Case(
        OperationCode.POW,
        "roots_of_tiny_bases",
        (tensor((3,), [1e-40, 1e-38, 1e-45]), tensor((1,), [0.5])),
        (tensor((3,), [0, 0, 0]),),
        (FLOAT32,),
    ),
    Case(
        OperationCode.PRELU,
        "slope_per_channel",
        (tensor((1, 2, 2, 2), [1, -2, 3, 4, -5, -0.5, 0, -8]), tensor((2,), [0.5, -1], 0.25, 10)),
        (tensor((1, 2, 2, 2), [1, 2, 3, 4, -2.5, 0.5, 0, 8], 0.25, 90),),
    ),
    Case(
        OperationCode.PRELU,
        "slope_has_more_axes",
        (tensor((2,), [-1, 2]), tensor((2, 1), [3, -0.5])),
        (tensor((2, 2), [-3, 2, 0.5, 2]),),
    ),
    Case(
        OperationCode.PRELU,
        "litert",
        (stored((1, 2, 3, 8), _LITERT_FIRST[:96], 0.031, 117), stored((8,), "71092483f877ceea", 0.017, 140)),
        (
            stored(
                (1, 2, 3, 8),
                "ba838db27a9da72386a49caeb5826ca580a1cf66a46f4e3293b5c365686d7b766ec3a2a090824ec366c4a96dab802100",
                0.045,
                101,
            ),
        ),
        (QUANT8, SIGNED),
        exact=True,
    ),
)

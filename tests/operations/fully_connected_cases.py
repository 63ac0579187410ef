# SPDX-License-Identifier: Apache-2.0
"""Cases of FULLY_CONNECTED, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from tests.operations.cases import QUANT8, SIGNED, Argument, Case, bias, integer, of, tensor, weights

ROWS = [1.0, 2.0, 3.0, -1.0, 0.5, 2.0]
MATRIX = [1.0, 0.0, -1.0, 0.5, 0.5, 0.5, 2.0, -1.0, 0.0, -2.0, 1.0, 1.0]
OFFSETS = [0.0, 0.25, 1.0, 3.25]
RESULT = [-2.0, 3.25, 1.0, 6.25, -3.0, 1.0, -1.5, 7.75]


def case(name: str, dims: tuple[int, ...], activation: FuseCode, result: list[float]) -> Case:
    return Case(
        OperationCode.FULLY_CONNECTED,
        name,
        (tensor(dims, ROWS), weights((4, 3), MATRIX), bias(OFFSETS, 0.25), integer(activation)),
        (tensor((2, 4), result, scale=0.25),),
    )


def exact(name: str, rows: Argument, matrix: Argument, offsets: Argument, result: Argument) -> Case:
    inputs = (rows, replace(matrix, constant=True), replace(offsets, constant=True), integer(FuseCode.NONE))
    assert result.type is not None
    return Case(OperationCode.FULLY_CONNECTED, name, inputs, (result,), (result.type,), exact=True)


CASES = (
    case("rows", (2, 3), FuseCode.NONE, RESULT),
    case("flattened", (1, 2, 1, 3), FuseCode.RELU, [0.0, 3.25, 1.0, 6.25, 0.0, 1.0, 0.0, 7.75]),
    case("regrouped_relu1", (3, 2), FuseCode.RELU1, [-1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0]),
    case("relu6", (2, 3), FuseCode.RELU6, [0.0, 3.25, 1.0, 6.0, 0.0, 1.0, 0.0, 6.0]),
    # 1000 products of 255 * 255 leave float32's exact range; the bias brings the sum back to 33.
    exact(
        "deep_sum",
        of(QUANT8, (1, 1000), [255] * 1000, 1.0, 0),
        of(QUANT8, (1, 1000), [255] * 1000, 1.0, 0),
        of(OperandCode.TENSOR_INT32, (1,), [33 - 255 * 255 * 1000], 1.0),
        of(QUANT8, (1, 1), [33], 1.0, 0),
    ),
    # 4 / 8 -> 1 and -4 / 8 -> 0: ties go up, as in LiteRT; 20 / 8 -> 3.
    exact(
        "ties",
        of(SIGNED, (3, 1), [4, -4, 20], 0.5, 0),
        of(SIGNED, (1, 1), [1], 0.25, 0),
        of(OperandCode.TENSOR_INT32, (1,), [0], 0.125),
        of(SIGNED, (3, 1), [1, 0, 3], 1.0, 0),
    ),
)

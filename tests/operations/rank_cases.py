# SPDX-License-Identifier: Apache-2.0
"""Cases of RANK."""

from __future__ import annotations

from nn_runtime.codes import OperandCode, OperationCode
from tests.operations.cases import ALL, BOOL8, INT32, Argument, Case, Kind, of, tensor


def count(value: int) -> tuple[Argument, ...]:
    return (Argument((), [value], OperandCode.INT32, 0.0, 0),)


CASES = (
    Case(OperationCode.RANK, "matrix", (tensor((2, 1), [1, 2]),), count(2), ALL, (Kind.PLAIN, Kind.DEVICE_MEMORY)),
    Case(OperationCode.RANK, "five_integers", (of(INT32, (1, 1, 1, 1, 1), [1]),), count(5), (INT32,), (Kind.PLAIN,)),
    Case(OperationCode.RANK, "truth", (of(BOOL8, (3,), [1, 0, 1]),), count(1), (BOOL8,), (Kind.PLAIN,)),
    *(
        Case(OperationCode.RANK, code.name.lower(), (of(code, (1, 1, 1), [1], 0.5),), count(3), (code,), (Kind.PLAIN,))
        for code in (OperandCode.TENSOR_QUANT16_SYMM, OperandCode.TENSOR_QUANT16_ASYMM, OperandCode.TENSOR_QUANT8_SYMM)
    ),
)

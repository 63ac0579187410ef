# SPDX-License-Identifier: Apache-2.0
"""Cases of TRANSPOSE, written out."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, Argument, Case, ints, omitted, tensor


def case(name: str, source: Argument, perm: Argument, result: Argument) -> Case:
    return Case(OperationCode.TRANSPOSE, name, (source, perm), (result,))


NO_INTS = omitted(INT32)
ROW_MAJOR = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
COLUMN_MAJOR = [0.0, 1.5, 0.5, 2.0, 1.0, 2.5]
# Element (a, b, c, d) of [2, 3, 2, 2] is 6 a + 2 b + c / 2 + d / 4 in steps that stay apart.
BOX = [6.0 * a + 2 * b + c + d * 0.5 for a in range(2) for b in range(3) for c in range(2) for d in range(2)]
BOX_TO_CABD = [6.0 * a + 2 * b + c + d * 0.5 for c in range(2) for a in range(2) for b in range(3) for d in range(2)]
BOX_REVERSED = [6.0 * a + 2 * b + c + d * 0.5 for d in range(2) for c in range(2) for b in range(3) for a in range(2)]

CASES = (
    case("matrix", tensor((2, 3), ROW_MAJOR), ints([1, 0]), tensor((3, 2), COLUMN_MAJOR)),
    case("matrix_reversed", tensor((2, 3), ROW_MAJOR), NO_INTS, tensor((3, 2), COLUMN_MAJOR)),
    case("same_order", tensor((2, 3), ROW_MAJOR), ints([0, 1]), tensor((2, 3), ROW_MAJOR)),
    case("vector", tensor((6,), ROW_MAJOR), NO_INTS, tensor((6,), ROW_MAJOR)),
    case("four_axes", tensor((2, 3, 2, 2), BOX), ints([2, 0, 1, 3]), tensor((2, 2, 3, 2), BOX_TO_CABD)),
    case("four_axes_reversed", tensor((2, 3, 2, 2), BOX), NO_INTS, tensor((2, 2, 3, 2), BOX_REVERSED)),
)

# SPDX-License-Identifier: Apache-2.0
"""Cases of RESHAPE, SQUEEZE and EXPAND_DIMS: the elements stay, the dimensions are worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, Argument, Case, integer, ints, of, omitted, tensor

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

NO_INTS = omitted(INT32)
VALUES = [value * 0.5 for value in range(24)]


def case(operation: OperationCode, name: str, dims: Dimensions, parameter: Argument, result: Dimensions) -> Case:
    return Case(operation, name, (tensor(dims, VALUES), parameter), (tensor(result, VALUES),))


RESHAPE, SQUEEZE = OperationCode.RESHAPE, OperationCode.SQUEEZE

CASES = (
    case(RESHAPE, "flatten", (2, 3, 4), ints([24]), (24,)),
    case(RESHAPE, "stretch", (2, 3, 4), ints([4, -1, 2]), (4, 3, 2)),
    case(RESHAPE, "many_axes", (24,), ints([1, 2, 3, 4, 1]), (1, 2, 3, 4, 1)),
    Case(
        RESHAPE,
        "integers",
        (of(INT32, (2, 3), [1, -2, 3, 2**30, 5, 6]), ints([3, -1])),
        (of(INT32, (3, 2), [1, -2, 3, 2**30, 5, 6]),),
        (INT32,),
    ),
    case(SQUEEZE, "every_axis_of_one", (1, 24, 1, 1), NO_INTS, (24,)),
    case(SQUEEZE, "some_axes", (1, 24, 1, 1), ints([-1, 0]), (24, 1)),
    case(SQUEEZE, "named_twice", (1, 4, 6), ints([0, 0, -3]), (4, 6)),
    Case(SQUEEZE, "nothing_left", (tensor((1, 1), [2.5]), NO_INTS), (tensor((1,), [2.5]),)),
    case(OperationCode.EXPAND_DIMS, "front", (4, 6), integer(0), (1, 4, 6)),
    case(OperationCode.EXPAND_DIMS, "middle", (4, 6), integer(-2), (4, 1, 6)),
    case(OperationCode.EXPAND_DIMS, "back", (2, 2, 2, 3), integer(4), (2, 2, 2, 3, 1)),
    Case(
        OperationCode.EXPAND_DIMS,
        "integers",
        (of(INT32, (2,), [2**30 + 1, -3]), integer(-1)),
        (of(INT32, (2, 1), [2**30 + 1, -3]),),
        (INT32,),
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""Cases of SLICE, STRIDED_SLICE and REVERSE on a 4 x 6 table, whose element (row, column) is 4 row + column / 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, Case, integer, ints, of, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.operand import Dimensions

TABLE = [4.0 * row + column * 0.5 for row in range(4) for column in range(6)]


def cells(rows: Sequence[int], columns: Sequence[int]) -> list[float]:
    return [4.0 * row + column * 0.5 for row in rows for column in columns]


def strided(
    name: str,
    begin: list[int],
    end: list[int],
    strides: list[int],
    masks: tuple[int, int, int],
    result: tuple[Dimensions, list[float]],
) -> Case:
    parameters = (ints(begin), ints(end), ints(strides), *(integer(mask) for mask in masks))
    return Case(OperationCode.STRIDED_SLICE, name, (tensor((4, 6), TABLE), *parameters), (tensor(*result),))


def plain(name: str, begin: list[int], size: list[int], result: tuple[Dimensions, list[float]]) -> Case:
    return Case(OperationCode.SLICE, name, (tensor((4, 6), TABLE), ints(begin), ints(size)), (tensor(*result),))


CASES = (
    strided("steps", [1, 0], [4, 6], [2, 3], (0, 0, 0), ((2, 2), cells([1, 3], [0, 3]))),
    strided("from_the_back", [-3, -4], [-1, -1], [1, 2], (0, 0, 0), ((2, 2), cells([1, 2], [2, 4]))),
    strided("backwards", [3, 5], [0, -9], [-1, -2], (0, 0, 0), ((3, 3), cells([3, 2, 1], [5, 3, 1]))),
    strided("backwards_open", [0, 2], [0, 0], [-2, -1], (1, 3, 0), ((2, 3), cells([3, 1], [2, 1, 0]))),
    strided("open", [2, 3], [1, 1], [1, 1], (1, 2, 0), ((1, 3), cells([0], [3, 4, 5]))),
    strided("beyond", [-9, 2], [9, 99], [1, 1], (0, 0, 0), ((4, 4), cells([0, 1, 2, 3], [2, 3, 4, 5]))),
    strided("drop_a_row", [2, 1], [3, 4], [1, 1], (0, 0, 1), ((3,), cells([2], [1, 2, 3]))),
    strided("drop_all", [2, 1], [3, 2], [1, 1], (0, 0, 3), ((1,), cells([2], [1]))),
    plain("window", [1, 2], [2, 3], ((2, 3), cells([1, 2], [2, 3, 4]))),
    plain("to_the_end", [2, 1], [-1, -1], ((2, 5), cells([2, 3], [1, 2, 3, 4, 5]))),
    Case(
        OperationCode.SLICE,
        "integers_of_five_axes",
        (of(INT32, (1, 2, 1, 3, 1), [1, 2, 3, 4, 2**30, 6]), ints([0, 1, 0, 1, 0]), ints([1, 1, 1, 2, 1])),
        (of(INT32, (1, 1, 1, 2, 1), [2**30, 6]),),
        (INT32,),
    ),
    Case(
        OperationCode.REVERSE,
        "rows",
        (tensor((4, 6), TABLE), ints([0])),
        (tensor((4, 6), cells(range(3, -1, -1), range(6))),),
    ),
    Case(
        OperationCode.REVERSE,
        "columns",
        (tensor((4, 6), TABLE), ints([1])),
        (tensor((4, 6), cells(range(4), range(5, -1, -1))),),
    ),
    Case(
        OperationCode.REVERSE,
        "integers_of_eight_axes",
        (of(INT32, (1, 1, 2, 1, 1, 1, 1, 2), [1, 2**30, -3, 4]), ints([7])),
        (of(INT32, (1, 1, 2, 1, 1, 1, 1, 2), [2**30, 1, 4, -3]),),
        (INT32,),
    ),
)

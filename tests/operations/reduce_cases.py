# SPDX-License-Identifier: Apache-2.0
"""Cases of MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM.

`litert_*` has the results of LiteRT's reference kernel.
"""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import ALL, BOOL8, FLOATS, QUANT8, SIGNED, Case, flag, integer, ints, of, stored, tensor

_INPUT = tensor((2, 2, 2), [1, 2, 3, 4, -5, 6, 7, 8])

_LITERT_INPUT = (
    "392661d0666193fa6497709a72a38cadf4268f705b3d0d67d31867f7f33701ab034c7fdf17a98821d8d87bf19be7f591"
    "47259031c0ed3e8d0c2e60e2"
)
_LITERT = (
    ((1, 2), (1, 1, 1, 5), "7e7a789876"),
    ((2,), (1, 3, 1, 5), "6e927d9a7f55596c8c6bb7837fa278"),
    ((3,), (1, 3, 4, 1), "6595898e60874b75be928968"),
    ((1, 2, 3), (1, 1, 1, 1), "7f"),
)

_TRUTH = of(BOOL8, (2, 2, 2), [1, 1, 0, 1, 0, 0, 1, 1])

CASES = (
    *(
        Case(
            OperationCode.MEAN,
            "litert_" + "".join(map(str, axes)),
            (stored((1, 3, 4, 5), _LITERT_INPUT, 0.05, 90), ints(axes), integer(1)),
            (stored(dims, codes, 0.05, 90),),
            (QUANT8, SIGNED),
            exact=True,
        )
        for axes, dims, codes in _LITERT
    ),
    Case(
        OperationCode.MEAN,
        "every_axis_twice",
        (_INPUT, ints([0, 1, 2, -1, -2, -3]), integer(0)),
        (tensor((1,), [3.25]),),
    ),
    Case(
        OperationCode.MEAN,
        "outer_axis",
        (tensor((2, 1, 3), [1, 2, 3, 4, 5, 7]), ints([0]), integer(0)),
        (tensor((1, 3), [2.5, 3.5, 5]),),
        FLOATS,
    ),
    Case(
        OperationCode.MEAN,
        "two_axes",
        (_INPUT, ints([0, -1]), integer(0)),
        (tensor((2,), [1, 5.5]),),
    ),
    Case(
        OperationCode.MEAN,
        "kept",
        (_INPUT, ints([1]), integer(1)),
        (tensor((2, 1, 2), [2, 3, 1, 7]),),
    ),
    *(
        case
        for operation, types, rows, planes, everything in (
            (OperationCode.REDUCE_MAX, ALL, [2, 4, 6, 8], [1, 6, 7, 8], 8),
            (OperationCode.REDUCE_MIN, ALL, [1, 3, -5, 7], [-5, 2, 3, 4], -5),
            (OperationCode.REDUCE_SUM, FLOATS, [3, 7, 1, 15], [-4, 8, 10, 12], 26),
            (OperationCode.REDUCE_PROD, FLOATS, [2, 12, -30, 56], [-5, 12, 21, 32], -40320),
        )
        for case in (
            Case(operation, "last_axis", (_INPUT, ints([-1]), flag(False)), (tensor((2, 2), rows),), types),
            Case(
                operation, "first_axis_kept", (_INPUT, ints([0, -3]), flag(True)), (tensor((1, 2, 2), planes),), types
            ),
            Case(operation, "everything", (_INPUT, ints([0, 1, 2]), flag(False)), (tensor((1,), [everything]),), types),
        )
    ),
    *(
        case
        for operation, rows, kept in (
            (OperationCode.REDUCE_ALL, [1, 0, 0, 1], [0, 0]),
            (OperationCode.REDUCE_ANY, [1, 1, 0, 1], [1, 1]),
        )
        for case in (
            Case(operation, "rows", (_TRUTH, ints([2]), flag(False)), (of(BOOL8, (2, 2), rows),), (BOOL8,)),
            Case(
                operation, "two_axes_kept", (_TRUTH, ints([1, -1]), flag(True)), (of(BOOL8, (2, 1, 1), kept),), (BOOL8,)
            ),
        )
    ),
)

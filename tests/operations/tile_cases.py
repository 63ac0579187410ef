# SPDX-License-Identifier: Apache-2.0
"""Cases of TILE, written out."""

from __future__ import annotations

from dataclasses import replace

from nn_runtime.codes import OperationCode
from tests.operations.cases import INT32, Case, ints, of, tensor

_INPUT = tensor((2, 2), [1, 2, 3, 4])
_RESULT = (tensor((4, 6), [1, 2] * 3 + [3, 4] * 3 + [1, 2] * 3 + [3, 4] * 3),)

CASES = (
    Case(OperationCode.TILE, "both_axes", (_INPUT, ints([2, 3])), _RESULT),
    Case(OperationCode.TILE, "multiples_at_run_time", (_INPUT, replace(ints([2, 3]), constant=False)), _RESULT),
    Case(
        OperationCode.TILE,
        "integers_of_five_axes",
        (of(INT32, (1, 2, 1, 1, 1), [5, 2**30]), ints([1, 1, 1, 2, 1])),
        (of(INT32, (1, 2, 1, 2, 1), [5, 5, 2**30, 2**30]),),
        (INT32,),
    ),
)

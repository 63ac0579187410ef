# SPDX-License-Identifier: Apache-2.0
"""Cases of MEAN."""

from __future__ import annotations

from nn_runtime.codes import OperationCode
from tests.operations.cases import Case, integer, ints, tensor

_INPUT = tensor((2, 2, 2), [1, 2, 3, 4, -5, 6, 7, 8])

CASES = (
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
)

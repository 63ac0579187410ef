# SPDX-License-Identifier: Apache-2.0
"""Cases of SOFTMAX."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from tests.operations.cases import Case, integer, real, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


def _softmax(row: Sequence[float], beta: float) -> list[float]:
    exponentials = [math.exp(beta * x) for x in row]
    return [x / sum(exponentials) for x in exponentials]


_ROWS = ((1, 2, -1, 3), (0.5, 0.5, 0.5, -4))
_FLAT = (*_ROWS[0], *_ROWS[1])
_COLUMNS = [_softmax(column, 0.5) for column in zip(*_ROWS, strict=True)]

CASES = (
    Case(
        OperationCode.SOFTMAX,
        "last_axis",
        (tensor((2, 4), _FLAT), real(1.0)),
        (tensor((2, 4), [x for row in _ROWS for x in _softmax(row, 1.0)], 1 / 256, 0),),
    ),
    Case(
        OperationCode.SOFTMAX,
        "first_axis",
        (tensor((2, 4), _FLAT), real(0.5), integer(-2)),
        (tensor((2, 4), [column[i] for i in range(2) for column in _COLUMNS], 1 / 256, 0),),
    ),
)

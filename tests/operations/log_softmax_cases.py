# SPDX-License-Identifier: Apache-2.0
"""Cases of LOG_SOFTMAX by its formula."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, Case, integer, real, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


def log_softmax(row: Sequence[float], beta: float) -> list[float]:
    total = math.log(sum(math.exp(beta * x) for x in row))
    return [beta * x - total for x in row]


_TOP, _BOTTOM = (1.0, -2.0, 0.5), (3.0, 0.25, -1.0)

CASES = (
    Case(
        OperationCode.LOG_SOFTMAX,
        "rows",
        (tensor((2, 1, 1, 1, 3), [*_TOP, *_BOTTOM]), real(0.5), integer(-1)),
        (tensor((2, 1, 1, 1, 3), [*log_softmax(_TOP, 0.5), *log_softmax(_BOTTOM, 0.5)]),),
        FLOATS,
    ),
    Case(
        OperationCode.LOG_SOFTMAX,
        "columns",
        (tensor((2, 3), [*_TOP, *_BOTTOM]), real(1.0), integer(0)),
        (
            tensor(
                (2, 3),
                [log_softmax(pair, 1.0)[row] for row in range(2) for pair in zip(_TOP, _BOTTOM, strict=True)],
            ),
        ),
        FLOATS,
    ),
    Case(
        OperationCode.LOG_SOFTMAX,
        "far_apart",
        (tensor((3,), [-1000.0, 500.0, 500.0]), real(4.0), integer(0)),
        (tensor((3,), [-6000.0 - math.log(2), -math.log(2), -math.log(2)]),),
        FLOATS,
    ),
)

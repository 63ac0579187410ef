# SPDX-License-Identifier: Apache-2.0
"""Cases of SOFTMAX; `litert_*` has the results of LiteRT's reference kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from tests.operations.cases import QUANT8, SIGNED, Case, integer, real, stored, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


def _softmax(row: Sequence[float], beta: float) -> list[float]:
    exponentials = [math.exp(beta * x) for x in row]
    return [x / sum(exponentials) for x in exponentials]


_ROWS = ((1, 2, -1, 3), (0.5, 0.5, 0.5, -4))
_FLAT = (*_ROWS[0], *_ROWS[1])
_COLUMNS = [_softmax(column, 0.5) for column in zip(*_ROWS, strict=True)]

_LITERT_INPUT = "b286faec78aef5e6cfc460d5a86982b3d2aebfeacb95c4bd6b63c79abd8f"
_LITERT = (
    (1.0, 0.1, "0000801f00004d110201001900000001130103cf60003018000040011800"),
    (0.5, 0.02, "130d28230b1326211a170b24170c101a23181d2c2415221f0e0d23161f14"),
    (2.0, 0.35, "0000f800000008000000000000000000000000fff000020000000f000000"),
)

CASES = (
    *(
        Case(
            OperationCode.SOFTMAX,
            f"litert_{scale}",
            (stored((3, 10), _LITERT_INPUT, scale, 11), real(beta)),
            (stored((3, 10), codes, 1 / 256, 0),),
            (QUANT8, SIGNED),
            exact=True,
        )
        for beta, scale, codes in _LITERT
    ),
    # A long axis of equal elements.
    Case(
        OperationCode.SOFTMAX,
        "long_axis",
        (tensor((6000, 1), [1] * 6000), real(1.0), integer(0)),
        (tensor((6000, 1), [1 / 6000] * 6000, 1 / 256, 0),),
    ),
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

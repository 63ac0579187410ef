# SPDX-License-Identifier: Apache-2.0
"""Cases of ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT: Python's math functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, INT32, QUANT8, SIGNED, Case, of, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

_ANY = (-2.5, -1.0, -0.25, 0.0, 0.5, 3.0)
_POSITIVE = (0.25, 0.5, 1.0, 2.0, 9.0, 100.0)
_FUNCTIONS: dict[OperationCode, tuple[Callable[[float], float], tuple[float, ...]]] = {
    OperationCode.ABS: (abs, _ANY),
    OperationCode.EXP: (math.exp, _ANY),
    OperationCode.FLOOR: (math.floor, _ANY),
    OperationCode.LOG: (math.log, _POSITIVE),
    OperationCode.NEG: (lambda x: -x, _ANY),
    OperationCode.RSQRT: (lambda x: 1 / math.sqrt(x), _POSITIVE),
    OperationCode.SIN: (math.sin, _ANY),
    OperationCode.SQRT: (math.sqrt, _POSITIVE),
}


def rsqrt_code(code: int) -> int:
    """Return 1 / sqrt(0.1 (code - 7)) in steps of 0.02 from 5 on; what has no root gives the greatest code."""
    return min(255, math.floor(1 / math.sqrt((code - 7) / 10) / 0.02 + 0.5) + 5) if code > 7 else 255


CASES = (
    *(
        Case(code, "values", (tensor((1, 3, 2), values),), (tensor((1, 3, 2), [function(x) for x in values]),), FLOATS)
        for code, (function, values) in _FUNCTIONS.items()
    ),
    *(
        Case(
            code,
            "integers",
            (of(INT32, (1, 1, 1, 1, 3), [-7, 2**31 - 1, 0]),),
            (of(INT32, (1, 1, 1, 1, 3), result),),
            (INT32,),
        )
        for code, result in ((OperationCode.ABS, [7, 2**31 - 1, 0]), (OperationCode.NEG, [7, 1 - 2**31, 0]))
    ),
    Case(
        OperationCode.RSQRT,
        "every_code",
        (tensor((256,), [0.1 * (code - 7) for code in range(256)], 0.1, 7),),
        (tensor((256,), [0.02 * (rsqrt_code(code) - 5) for code in range(256)], 0.02, 5),),
        (QUANT8, SIGNED),
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""Cases of RELU, RELU1, RELU6, LOGISTIC, TANH, HARD_SWISH."""

from __future__ import annotations

import math

from nn_runtime.codes import OperationCode
from tests.operations.cases import Case, tensor

_VALUES = (-7.5, -1.5, -0.5, 0, 0.5, 1, 2.5, 8)
_DIMS = (2, 1, 4)
_INPUT = tensor(_DIMS, _VALUES)

CASES = (
    Case(OperationCode.RELU, "values", (_INPUT,), (tensor(_DIMS, [max(0, x) for x in _VALUES]),)),
    Case(OperationCode.RELU1, "values", (_INPUT,), (tensor(_DIMS, [min(1, max(-1, x)) for x in _VALUES]),)),
    Case(OperationCode.RELU6, "values", (_INPUT,), (tensor(_DIMS, [min(6, max(0, x)) for x in _VALUES]),)),
    Case(
        OperationCode.LOGISTIC,
        "values",
        (_INPUT,),
        (tensor(_DIMS, [1 / (1 + math.exp(-x)) for x in _VALUES], 1 / 256, 0),),
    ),
    Case(OperationCode.TANH, "values", (_INPUT,), (tensor(_DIMS, [math.tanh(x) for x in _VALUES], 1 / 128, 128),)),
    Case(
        OperationCode.HARD_SWISH,
        "values",
        (_INPUT,),
        (tensor(_DIMS, [x * min(6, max(0, x + 3)) / 6 for x in _VALUES], 0.0625, 100),),
    ),
)

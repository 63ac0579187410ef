# SPDX-License-Identifier: Apache-2.0
"""Cases of UNIDIRECTIONAL_SEQUENCE_LSTM: one unit whose recurrence a few lines of plain arithmetic follow."""

from __future__ import annotations

import math

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOATS, Case, flag, integer, omitted, real, tensor, weights

_TANH = integer(4)
_INPUTS = (0.5, -1.0, 2.0)
# Weights of the input and of the recurrence, and bias, of the gates: input, forget, cell, output.
_GATES = ((0.5, 0.25, 0.125), (-0.5, 0.5, 0.25), (1.0, -0.25, 0.0), (0.75, 0.5, -0.125))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _outputs() -> list[float]:
    state, cell, outputs = 0.0, 0.0, []
    for x in _INPUTS:
        gates = [x * by_input + state * by_state + offset for by_input, by_state, offset in _GATES]
        cell = _sigmoid(gates[1]) * cell + _sigmoid(gates[0]) * math.tanh(gates[2])
        state = _sigmoid(gates[3]) * math.tanh(cell)
        outputs.append(state)
    return outputs


CASES = (
    Case(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        "one_unit",
        (
            tensor((3, 1, 1), _INPUTS),
            *(weights((1, 1), [gate[0]]) for gate in _GATES),
            *(weights((1, 1), [gate[1]]) for gate in _GATES),
            omitted(), omitted(), omitted(),
            *(weights((1,), [gate[2]]) for gate in _GATES),
            omitted(), omitted(),
            weights((1, 1), [0]), weights((1, 1), [0]),
            _TANH, real(0.0), real(0.0), flag(True),
            omitted(), omitted(), omitted(), omitted(),
        ),
        (tensor((3, 1, 1), _outputs()),),
        FLOATS,
    ),
)  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Cases of the RNN operations against plain arithmetic, one unit at a time, in float64."""

from __future__ import annotations

import numpy as np

from nn_runtime.codes import FuseCode, OperationCode
from tests.operations.cases import FLOATS, Argument, Case, flag, integer, omitted, tensor, weights

_STEPS, _BATCHES, _INPUTS, _AUXILIARY, _UNITS = 3, 2, 3, 5, 4

_BOUNDS = {
    FuseCode.NONE: (-1e9, 1e9),
    FuseCode.RELU: (0, 1e9),
    FuseCode.RELU1: (-1, 1),
    FuseCode.RELU6: (0, 6),
}


class Rnn:
    """Weights, multiples of 1/16, and the recurrence as the specification writes it."""

    def __init__(self, seed: int = 30, input_size: int = _INPUTS) -> None:
        rng = np.random.default_rng(seed)

        def draw(*dims: int) -> np.ndarray:
            return rng.integers(-16, 17, dims) / 16

        self.inputs = draw(_STEPS, _BATCHES, input_size)
        self.auxiliary = draw(_STEPS, _BATCHES, _AUXILIARY)
        self.by_input, self.by_state, self.bias = draw(_UNITS, input_size), draw(_UNITS, _UNITS), draw(_UNITS)
        self.by_auxiliary = draw(_UNITS, _AUXILIARY)
        self.state = draw(_BATCHES, _UNITS)

    def run(
        self, inputs: np.ndarray, activation: FuseCode, auxiliary: np.ndarray | None = None, backward: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs [steps, batches, units] and the last state."""
        low, high = _BOUNDS[activation]
        state = self.state.copy()
        outputs = np.zeros((len(inputs), _BATCHES, _UNITS))
        for step in reversed(range(len(inputs))) if backward else range(len(inputs)):
            for batch in range(_BATCHES):
                previous = state[batch].copy()
                for unit in range(_UNITS):
                    total = self.by_input[unit] @ inputs[step, batch] + self.by_state[unit] @ previous + self.bias[unit]
                    if auxiliary is not None:
                        total += self.by_auxiliary[unit] @ auxiliary[step, batch]
                    state[batch, unit] = min(max(total, low), high)
                outputs[step, batch] = state[batch]
        return outputs, state

    def arguments(self) -> tuple[Argument, ...]:
        """Return weights, recurrent weights, bias and state."""
        return *map(_constant, (self.by_input, self.by_state, self.bias)), _data(self.state)


def _constant(values: np.ndarray) -> Argument:
    return weights(values.shape, values.reshape(-1))


def _data(values: np.ndarray) -> Argument:
    return tensor(values.shape, values.reshape(-1))


def _step(activation: FuseCode) -> Case:
    rnn = Rnn()
    _, state = rnn.run(rnn.inputs[:1], activation)
    inputs = (_data(rnn.inputs[0]), *rnn.arguments(), integer(activation))
    return Case(OperationCode.RNN, activation.name.lower(), inputs, (_data(state), _data(state)), FLOATS)


def _sequence(name: str, activation: FuseCode, time_major: bool, states: bool) -> Case:
    rnn = Rnn()
    order = (0, 1, 2) if time_major else (1, 0, 2)
    outputs, state = rnn.run(rnn.inputs, activation)
    inputs = (_data(rnn.inputs.transpose(order)), *rnn.arguments(), integer(activation), integer(int(time_major)))
    results = (_data(outputs.transpose(order)), _data(state))[: 2 if states else 1]
    return Case(OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN, name, inputs, results, FLOATS)


def _bidirectional(link: str, time_major: bool, states: bool, merge: bool) -> Case:
    """Return a case; `link` is what the auxiliary input does: "none", "parallel" or "cross"."""
    forward, backward = Rnn(30), Rnn(31, _AUXILIARY if link == "parallel" else _INPUTS)
    auxiliary, crossed = forward.auxiliary, forward.auxiliary if link == "cross" else None
    activation = FuseCode.RELU6
    forward_outputs, forward_state = forward.run(forward.inputs, activation, crossed)
    backward_inputs = auxiliary if link == "parallel" else forward.inputs
    backward_outputs, backward_state = backward.run(backward_inputs, activation, crossed, backward=True)
    order = (0, 1, 2) if time_major else (1, 0, 2)
    inputs = (
        _data(forward.inputs.transpose(order)),
        *forward.arguments(),
        *backward.arguments(),
        omitted() if link == "none" else _data(auxiliary.transpose(order)),
        *(_constant(rnn.by_auxiliary) if link == "cross" else omitted() for rnn in (forward, backward)),
        integer(activation),
        flag(time_major),
        flag(merge),
    )
    sequences = [forward_outputs.transpose(order), backward_outputs.transpose(order)]
    outputs = [np.concatenate(sequences, axis=2)] if merge else sequences
    results = (*outputs, *((forward_state, backward_state) if states else ()))
    kind = "_".join((["time_major"] if time_major else []) + (["states"] if states else []) + ["merged"] * merge)
    name = f"{link}_{kind or 'plain'}"
    return Case(OperationCode.BIDIRECTIONAL_SEQUENCE_RNN, name, inputs, tuple(map(_data, results)), FLOATS)


_BOTH = (False, True)

CASES = (
    *(_step(activation) for activation in FuseCode),
    *(_sequence(activation.name.lower(), activation, False, False) for activation in FuseCode),
    _sequence("time_major", FuseCode.RELU1, True, False),
    _sequence("states", FuseCode.RELU, False, True),
    _sequence("time_major_states", FuseCode.RELU, True, True),
    *(
        _bidirectional(link, time_major, states, merge)
        for link in ("none", "parallel", "cross")
        for time_major in _BOTH
        for states in _BOTH
        for merge in _BOTH
    ),
)

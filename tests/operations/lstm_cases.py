# SPDX-License-Identifier: Apache-2.0
"""Cases of UNIDIRECTIONAL_SEQUENCE_LSTM: every variant against plain arithmetic, one unit at a time, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nn_runtime.codes import OperationCode
from tests.operations.cases import FLOAT32, FLOATS, Argument, Case, flag, integer, omitted, real, tensor, weights

_GATES = ("input", "forget", "cell", "output")
_NONE, _RELU, _RELU6, _TANH, _SIGMOID = 0, 1, 3, 4, 6
_STEPS, _BATCHES, _INPUTS, _UNITS, _PROJECTED = 3, 2, 3, 4, 2


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


_ACTIVATIONS = {
    _NONE: lambda x: x,
    _RELU: lambda x: max(0.0, x),
    _RELU6: lambda x: min(6.0, max(0.0, x)),
    _TANH: math.tanh,
    _SIGMOID: _sigmoid,
}


@dataclass(frozen=True)
class Variant:
    """What a case uses of the operation."""

    cifg: bool = False
    peephole: bool = False
    layer_norm: bool = False
    projection: bool = False
    projection_bias: bool = False
    time_major: bool = False
    states: bool = False
    activation: int = _TANH
    cell_clip: float = 0.0
    proj_clip: float = 0.0

    @property
    def output_size(self) -> int:
        return _PROJECTED if self.projection else _UNITS


class Lstm:
    """Weights of one variant, multiples of 1/16, and the recurrence as the specification writes it."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        rng = np.random.default_rng(20)

        def draw(*dims: int) -> np.ndarray:
            return rng.integers(-16, 17, dims) / 16

        size = variant.output_size
        self.inputs = draw(_STEPS, _BATCHES, _INPUTS)
        self.by_input = {gate: draw(_UNITS, _INPUTS) for gate in _GATES}
        self.by_state = {gate: draw(_UNITS, size) for gate in _GATES}
        self.by_cell = {gate: draw(_UNITS) for gate in _GATES}
        self.bias = {gate: draw(_UNITS) for gate in _GATES}
        self.norm = {gate: draw(_UNITS) for gate in _GATES}
        self.projection = draw(size, _UNITS)
        self.projection_bias = draw(size)
        self.state, self.cell = draw(_BATCHES, size), draw(_BATCHES, _UNITS)

    def run(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return outputs [steps, batches, size], and the last output and cell states."""
        outputs = np.zeros((_STEPS, _BATCHES, self.variant.output_size))
        states, cells = self.state.copy(), self.cell.copy()
        for step in range(_STEPS):
            for batch in range(_BATCHES):
                states[batch], cells[batch] = self._step(self.inputs[step, batch], states[batch], cells[batch])
                outputs[step, batch] = states[batch]
        return outputs, states, cells

    def _step(self, x: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        variant, g = self.variant, _ACTIVATIONS[self.variant.activation]
        forget = [_sigmoid(v) for v in self._sums("forget", x, state, cell)]
        opened = [1 - f for f in forget] if variant.cifg else [_sigmoid(v) for v in self._sums("input", x, state, cell)]
        fresh = [g(v) for v in self._sums("cell", x, state, cell)]
        cell = np.array([f * c + i * n for f, c, i, n in zip(forget, cell, opened, fresh, strict=True)])
        cell = _clipped(cell, variant.cell_clip)
        output = [_sigmoid(v) for v in self._sums("output", x, state, cell)]
        hidden = np.array([o * g(c) for o, c in zip(output, cell, strict=True)])
        if not variant.projection:
            return hidden, cell
        offset = self.projection_bias if variant.projection_bias else 0
        return _clipped(self.projection @ hidden + offset, variant.proj_clip), cell

    def _sums(self, gate: str, x: np.ndarray, state: np.ndarray, cell: np.ndarray) -> np.ndarray:
        sums = self.by_input[gate] @ x + self.by_state[gate] @ state
        if self.variant.peephole and gate != "cell":
            sums = sums + self.by_cell[gate] * cell
        if self.variant.layer_norm:
            sums = (sums - sums.mean()) / math.sqrt(sums.var() + 1e-8) * self.norm[gate]
        return sums + self.bias[gate]


def _clipped(values: np.ndarray, limit: float) -> np.ndarray:
    return np.clip(values, -limit, limit) if limit else values


def _argument(values: np.ndarray, used: bool = True) -> Argument:
    return weights(values.shape, values.reshape(-1)) if used else omitted()


def _data(values: np.ndarray) -> Argument:
    return tensor(values.shape, values.reshape(-1))


def _case(name: str, variant: Variant) -> Case:
    lstm = Lstm(variant)
    gated = {gate: gate != "input" or not variant.cifg for gate in _GATES}
    outputs, states, cells = lstm.run()
    order = (0, 1, 2) if variant.time_major else (1, 0, 2)
    inputs = (
        _data(lstm.inputs.transpose(order)),
        *(_argument(lstm.by_input[gate], gated[gate]) for gate in _GATES),
        *(_argument(lstm.by_state[gate], gated[gate]) for gate in _GATES),
        *(_argument(lstm.by_cell[gate], variant.peephole and gated[gate]) for gate in _GATES if gate != "cell"),
        *(_argument(lstm.bias[gate], gated[gate]) for gate in _GATES),
        _argument(lstm.projection, variant.projection),
        _argument(lstm.projection_bias, variant.projection_bias),
        _data(lstm.state),
        _data(lstm.cell),
        integer(variant.activation),
        real(variant.cell_clip),
        real(variant.proj_clip),
        flag(variant.time_major),
        *(_argument(lstm.norm[gate], variant.layer_norm and gated[gate]) for gate in _GATES),
    )
    results = (outputs.transpose(order), states, cells) if variant.states else (outputs.transpose(order),)
    # Layer norm divides by small deviations, which enlarges what float16 rounds.
    types = (FLOAT32,) if variant.layer_norm else FLOATS
    return Case(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, name, inputs, tuple(map(_data, results)), types)


CASES = (
    _case("plain", Variant()),
    _case("time_major", Variant(time_major=True)),
    _case("states", Variant(states=True)),
    _case("cifg", Variant(cifg=True)),
    _case("peephole", Variant(peephole=True, states=True)),
    _case("cifg_peephole", Variant(cifg=True, peephole=True)),
    _case("projection", Variant(projection=True, states=True)),
    _case("projection_bias_clipped", Variant(projection=True, projection_bias=True, proj_clip=0.5)),
    _case("cell_clipped", Variant(cell_clip=0.25, states=True)),
    _case("layer_norm", Variant(layer_norm=True)),
    _case("layer_norm_cifg_peephole_projection", Variant(True, True, True, True, True, True, True)),
    *(_case(f"activation_{code}", Variant(activation=code)) for code in (_NONE, _RELU, _RELU6, _SIGMOID)),
)

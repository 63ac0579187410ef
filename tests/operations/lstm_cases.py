# SPDX-License-Identifier: Apache-2.0
"""Cases of the LSTM operations: every variant against plain arithmetic, one unit at a time, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperationCode
from tests.operations.cases import (
    FLOAT32,
    FLOATS,
    Argument,
    Case,
    flag,
    ignored,
    integer,
    omitted,
    real,
    tensor,
    weights,
)

if TYPE_CHECKING:
    from nn_runtime.codes import OperandCode

_GATES = ("input", "forget", "cell", "output")
_NONE, _RELU, _RELU6, _TANH, _SIGMOID = 0, 1, 3, 4, 6
_STEPS, _BATCHES, _INPUTS, _AUXILIARY, _UNITS, _PROJECTED = 3, 2, 3, 5, 4, 2


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

    def __init__(self, variant: Variant, seed: int = 20, input_size: int = _INPUTS) -> None:
        self.variant = variant
        rng = np.random.default_rng(seed)

        def draw(*dims: int) -> np.ndarray:
            return rng.integers(-16, 17, dims) / 16

        size = variant.output_size
        self.inputs = draw(_STEPS, _BATCHES, input_size)
        self.by_input = {gate: draw(_UNITS, input_size) for gate in _GATES}
        self.by_state = {gate: draw(_UNITS, size) for gate in _GATES}
        self.by_cell = {gate: draw(_UNITS) for gate in _GATES}
        self.bias = {gate: draw(_UNITS) for gate in _GATES}
        self.norm = {gate: draw(_UNITS) for gate in _GATES}
        self.projection = draw(size, _UNITS)
        self.projection_bias = draw(size)
        self.state, self.cell = draw(_BATCHES, size), draw(_BATCHES, _UNITS)
        self.auxiliary = draw(_STEPS, _BATCHES, _AUXILIARY)
        self.by_auxiliary = {gate: draw(_UNITS, _AUXILIARY) for gate in _GATES}

    def run(self, inputs: np.ndarray, backward: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return outputs [steps, batches, size], and the last output and cell states."""
        steps = len(inputs)
        outputs = np.zeros((steps, _BATCHES, self.variant.output_size))
        states, cells = self.state.copy(), self.cell.copy()
        for step in reversed(range(steps)) if backward else range(steps):
            for batch in range(_BATCHES):
                states[batch], cells[batch] = self._step(inputs[step, batch], states[batch], cells[batch])
                outputs[step, batch] = states[batch]
        return outputs, states, cells

    def with_auxiliary_weights(self) -> Lstm:
        """Return the cell that gets input and auxiliary input as one."""
        joined = Lstm(self.variant)
        vars(joined).update(vars(self))
        joined.by_input = {gate: np.hstack((self.by_input[gate], self.by_auxiliary[gate])) for gate in _GATES}
        return joined

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


def _cell_arguments(lstm: Lstm) -> tuple[Argument, ...]:
    variant = lstm.variant
    gated = _gated(variant)
    return (
        *(_argument(lstm.by_input[gate], gated[gate]) for gate in _GATES),
        *(_argument(lstm.by_state[gate], gated[gate]) for gate in _GATES),
        *(_argument(lstm.by_cell[gate], variant.peephole and gated[gate]) for gate in _GATES if gate != "cell"),
        *(_argument(lstm.bias[gate], gated[gate]) for gate in _GATES),
        _argument(lstm.projection, variant.projection),
        _argument(lstm.projection_bias, variant.projection_bias),
    )


def _gated(variant: Variant) -> dict[str, bool]:
    return {gate: gate != "input" or not variant.cifg for gate in _GATES}


def _norms(lstm: Lstm) -> tuple[Argument, ...]:
    gated = _gated(lstm.variant)
    return tuple(_argument(lstm.norm[gate], lstm.variant.layer_norm and gated[gate]) for gate in _GATES)


def _parameters(variant: Variant) -> tuple[Argument, ...]:
    return integer(variant.activation), real(variant.cell_clip), real(variant.proj_clip)


def _types(variant: Variant) -> tuple[OperandCode, ...]:
    # Layer norm divides by small deviations, which enlarges what float16 rounds.
    return (FLOAT32,) if variant.layer_norm else FLOATS


def _sequence(name: str, variant: Variant) -> Case:
    lstm = Lstm(variant)
    outputs, states, cells = lstm.run(lstm.inputs)
    order = (0, 1, 2) if variant.time_major else (1, 0, 2)
    inputs = (
        _data(lstm.inputs.transpose(order)),
        *_cell_arguments(lstm),
        _data(lstm.state),
        _data(lstm.cell),
        *_parameters(variant),
        flag(variant.time_major),
        *_norms(lstm),
    )
    results = (outputs.transpose(order), states, cells) if variant.states else (outputs.transpose(order),)
    return Case(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, name, inputs, tuple(map(_data, results)), _types(variant))


def _step(name: str, variant: Variant) -> Case:
    lstm = Lstm(variant)
    _, states, cells = lstm.run(lstm.inputs[:1])
    inputs = (
        _data(lstm.inputs[0]),
        *_cell_arguments(lstm),
        _data(lstm.state),
        _data(lstm.cell),
        *_parameters(variant),
        *(_norms(lstm) if variant.layer_norm else ()),
    )
    scratch = ignored((_BATCHES, _UNITS * (3 if variant.cifg else 4)))
    return Case(OperationCode.LSTM, name, inputs, (scratch, *map(_data, (states, cells, states))), _types(variant))


def _bidirectional(name: str, variant: Variant, link: str = "none", merge: bool = False) -> Case:
    """Return a case; `link` is what the auxiliary input does: "none", "parallel" or "cross"."""
    forward = Lstm(variant, 20)
    backward = Lstm(variant, 21, _AUXILIARY if link == "parallel" else _INPUTS)
    forward_inputs, auxiliary = forward.inputs, forward.auxiliary
    if link == "cross":
        both = np.concatenate((forward_inputs, auxiliary), axis=2)
        forward_results = forward.with_auxiliary_weights().run(both)
        backward_results = backward.with_auxiliary_weights().run(both, backward=True)
    else:
        forward_results = forward.run(forward_inputs)
        backward_results = backward.run(auxiliary if link == "parallel" else forward_inputs, backward=True)
    order = (0, 1, 2) if variant.time_major else (1, 0, 2)
    weighted = {gate: link == "cross" and used for gate, used in _gated(variant).items()}
    inputs = (
        _data(forward_inputs.transpose(order)),
        *_cell_arguments(forward),
        *_cell_arguments(backward),
        *map(_data, (forward.state, forward.cell, backward.state, backward.cell)),
        omitted() if link == "none" else _data(auxiliary.transpose(order)),
        *(_argument(cell.by_auxiliary[g], weighted[g]) for cell in (forward, backward) for g in _GATES),
        *_parameters(variant),
        flag(merge),
        flag(variant.time_major),
        *_norms(forward),
        *_norms(backward),
    )
    sequences = [forward_results[0].transpose(order), backward_results[0].transpose(order)]
    outputs = [np.concatenate(sequences, axis=2)] if merge else sequences
    states = [*forward_results[1:], *backward_results[1:]] if variant.states else []
    results = tuple(map(_data, (*outputs, *states)))
    return Case(OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM, name, inputs, results, _types(variant))


_VARIANTS = {
    "plain": Variant(),
    "cifg": Variant(cifg=True),
    "peephole": Variant(peephole=True),
    "cifg_peephole": Variant(cifg=True, peephole=True),
    "projection": Variant(projection=True),
    "projection_bias_clipped": Variant(projection=True, projection_bias=True, proj_clip=0.5),
    "cell_clipped": Variant(cell_clip=0.25),
    "layer_norm": Variant(layer_norm=True),
    "layer_norm_cifg_peephole_projection": Variant(True, True, True, True, True),
    **{f"activation_{code}": Variant(activation=code) for code in (_NONE, _RELU, _RELU6, _SIGMOID)},
}

CASES = (
    *(_sequence(name, variant) for name, variant in _VARIANTS.items()),
    *(_sequence(f"{name}_states", replace(variant, states=True)) for name, variant in _VARIANTS.items()),
    _sequence("time_major", Variant(time_major=True)),
    _sequence("layer_norm_cifg_peephole_projection_time_major", Variant(True, True, True, True, True, True, True)),
    *(_step(name, variant) for name, variant in _VARIANTS.items()),
    *(_bidirectional(name, variant) for name, variant in _VARIANTS.items()),
    *(_bidirectional(f"{name}_merged_states", replace(v, states=True), merge=True) for name, v in _VARIANTS.items()),
    *(
        _bidirectional(f"{link}_{name}", Variant(cifg=cifg, time_major=time_major, states=states), link, merge)
        for link in ("parallel", "cross")
        for name, cifg, time_major, states, merge in (
            ("plain", False, False, False, False),
            ("merged", False, True, False, True),
            ("cifg_states", True, True, True, False),
            ("merged_states", True, False, True, True),
        )
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""UNIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.activation import logistic
from nn_runtime.codes import OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations.lstm import (
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_RELU6,
    ACTIVATION_SIGMOID,
    ACTIVATION_TANH,
    SequenceLstm,
    bias_name,
    sequence_lstm,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

_LAYER_NORM_EPSILON = np.float32(1e-8)

_ACTIVATIONS: dict[int, Callable[[Array], Array]] = {
    ACTIVATION_NONE: lambda values: values,
    ACTIVATION_RELU: lambda values: np.maximum(values, 0),
    ACTIVATION_RELU6: lambda values: np.clip(values, 0, 6),
    ACTIVATION_TANH: np.tanh,
    ACTIVATION_SIGMOID: logistic,
}


@computes(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(op: OperationView) -> tuple[Array, ...]:
    """Return the output of every time step, and, where asked for, the last output and cell states."""
    lstm = sequence_lstm(op)
    cell = _cell(op, lstm)
    inputs = _real(op, "input")
    if not lstm.time_major:
        inputs = inputs.swapaxes(0, 1)
    # One product for the inputs of all steps: [max_time, gates, batches, num_units].
    projected = np.matmul(inputs[:, None], cell.input_weights)
    output_state, cell_state = _real(op, "output_state_in"), _real(op, "cell_state_in")
    outputs = np.empty((lstm.max_time, lstm.batches, lstm.output_size), np.float32)
    for step in range(lstm.max_time):
        output_state, cell_state = cell.advance(projected[step], output_state, cell_state)
        outputs[step] = output_state
    results = (outputs if lstm.time_major else outputs.swapaxes(0, 1), output_state, cell_state)
    dtype = dtype_of(op.data_type)
    return tuple(result.astype(dtype, copy=False) for result in results[: len(op.outputs)])


@dataclass(frozen=True)
class _Cell:
    """Weights of one cell in float32; gates are stacked in the order of `lstm.gates`."""

    lstm: SequenceLstm
    input_weights: Array
    """[gates, input_size, num_units]."""
    recurrent_weights: Array
    """[gates, output_size, num_units]."""
    biases: dict[str, Array]
    peepholes: dict[str, Array]
    layer_norms: dict[str, Array]
    projection_weights: Array | None
    projection_bias: Array | None

    def advance(self, projected: Array, output_state: Array, cell_state: Array) -> tuple[Array, Array]:
        """Return output and cell state after one step; `projected` is the input times its weights, per gate."""
        products = projected + np.matmul(output_state, self.recurrent_weights)
        sums = dict(zip(self.lstm.gates, products, strict=True))
        forget = logistic(self._gate("forget", sums, cell_state))
        opened = logistic(self._gate("input", sums, cell_state)) if self.lstm.input_gate else 1 - forget
        activation = _ACTIVATIONS[self.lstm.activation]
        cell_state = forget * cell_state + opened * activation(self._gate("cell", sums, cell_state))
        cell_state = _clip(cell_state, self.lstm.cell_clip)
        hidden = logistic(self._gate("output", sums, cell_state)) * activation(cell_state)
        return self._project(hidden), cell_state

    def _gate(self, gate: str, sums: dict[str, Array], cell_state: Array) -> Array:
        values = sums[gate]
        if gate in self.peepholes:
            values = values + self.peepholes[gate] * cell_state
        if gate in self.layer_norms:
            centred = values - values.mean(axis=-1, keepdims=True)
            variance = np.square(centred).mean(axis=-1, keepdims=True)
            values = centred / np.sqrt(variance + _LAYER_NORM_EPSILON) * self.layer_norms[gate]
        gated: Array = values + self.biases[gate]
        return gated

    def _project(self, hidden: Array) -> Array:
        if self.projection_weights is None:
            return hidden
        projected: Array = hidden @ self.projection_weights
        if self.projection_bias is not None:
            projected += self.projection_bias
        return _clip(projected, self.lstm.proj_clip)


def _cell(op: OperationView, lstm: SequenceLstm) -> _Cell:
    return _Cell(
        lstm,
        np.stack([_real(op, f"input_to_{gate}_weights").T for gate in lstm.gates]),
        np.stack([_real(op, f"recurrent_to_{gate}_weights").T for gate in lstm.gates]),
        {gate: _real(op, bias_name(gate)) for gate in lstm.gates},
        {gate: _real(op, f"cell_to_{gate}_weights") for gate in lstm.gates if lstm.peephole and gate != "cell"},
        {gate: _real(op, f"{gate}_layer_norm_weights") for gate in lstm.gates if lstm.layer_norm},
        _real(op, "projection_weights").T if lstm.projection else None,
        _real(op, "projection_bias") if op.optional("projection_bias") is not None else None,
    )


def _real(op: OperationView, name: str) -> Array:
    return op.array(name).astype(np.float32, copy=False)


def _clip(values: Array, limit: float) -> Array:
    return values.clip(-limit, limit) if limit > 0 else values

# SPDX-License-Identifier: Apache-2.0
"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.activation import logistic
from cpu_driver.operations.sequence import both_directions, narrowed, real, time_first, time_second
from nn_runtime.codes import OperationCode
from nn_runtime.operations.lstm import (
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_RELU6,
    ACTIVATION_SIGMOID,
    ACTIVATION_TANH,
    LstmCell,
    bidirectional_lstm,
    lstm_step,
    sequence_lstm,
)
from nn_runtime.operations.sequence import Linking
from nn_runtime.value_classes import dataclass

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


@computes(OperationCode.LSTM)
def lstm(op: OperationView) -> tuple[Array, ...]:
    """Return scratch (zeros), output state, cell state and output of one step."""
    sizes = lstm_step(op)
    cell = _Cell(op, sizes)
    outputs, output_state, cell_state = cell.run(real(op, "input")[None], None)
    scratch = np.zeros((sizes.batches, len(sizes.gates) * sizes.num_units), np.float32)
    return narrowed(op, (scratch, output_state, cell_state, outputs[0]))


@computes(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(op: OperationView) -> tuple[Array, ...]:
    """Return the output of every time step, and, where asked for, the last output and cell states."""
    sizes = sequence_lstm(op)
    outputs, *states = _Cell(op, sizes.cell).run(time_first(op, "input", sizes.steps), None)
    return narrowed(op, (time_second(outputs, sizes.steps), *states))


@computes(OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(op: OperationView) -> tuple[Array, ...]:
    """Return the outputs of both directions, merged or not, and, where asked for, the last states of both cells."""
    sizes = bidirectional_lstm(op)
    inputs = time_first(op, "input", sizes.steps)
    auxiliary = None if sizes.linking == Linking.NONE else time_first(op, "aux_input", sizes.steps)
    weighted = auxiliary if sizes.linking == Linking.CROSS else None
    backward_inputs = auxiliary if auxiliary is not None and weighted is None else inputs
    forward, *forward_states = _Cell(op, sizes.forward).run(inputs, weighted)
    backward, *backward_states = _Cell(op, sizes.backward).run(backward_inputs, weighted, backward=True)
    outputs = both_directions(forward, backward, sizes.steps, sizes.merge_outputs)
    return narrowed(op, (*outputs, *forward_states, *backward_states))


@dataclass(frozen=True)
class _Weights:
    """Weights of one cell in float32; gates are stacked in the order of `LstmCell.gates`."""

    inputs: Array
    """[gates, input_size, num_units]."""
    auxiliary: Array | None
    """[gates, auxiliary_size, num_units]."""
    recurrent: Array
    """[gates, output_size, num_units]."""
    biases: dict[str, Array]
    peepholes: dict[str, Array]
    layer_norms: dict[str, Array]
    projection: Array | None
    projection_bias: Array | None


class _Cell:
    """A cell with its weights and first states."""

    def __init__(self, op: OperationView, sizes: LstmCell) -> None:
        self._sizes = sizes
        self._weights = _weights(op, sizes)
        self._states = [real(op, name) for name in sizes.state_names]

    def run(self, inputs: Array, auxiliary: Array | None, backward: bool = False) -> tuple[Array, Array, Array]:
        """Return the outputs [max_time, batches, output_size] and the last output and cell states.

        `inputs` and `auxiliary` (where it has weights) are [max_time, batches, size].
        """
        # One product for the inputs of all steps: [max_time, gates, batches, num_units].
        projected = np.matmul(inputs[:, None], self._weights.inputs)
        if auxiliary is not None and self._weights.auxiliary is not None:
            projected += np.matmul(auxiliary[:, None], self._weights.auxiliary)
        output_state, cell_state = self._states
        outputs = np.empty((len(inputs), *output_state.shape), np.float32)
        order = reversed(range(len(inputs))) if backward else range(len(inputs))
        for step in order:
            output_state, cell_state = self._advance(projected[step], output_state, cell_state)
            outputs[step] = output_state
        return outputs, output_state, cell_state

    def _advance(self, projected: Array, output_state: Array, cell_state: Array) -> tuple[Array, Array]:
        """Return output and cell state after one step; `projected` is the input times its weights, per gate."""
        sizes = self._sizes
        products = projected + np.matmul(output_state, self._weights.recurrent)
        sums = dict(zip(sizes.gates, products, strict=True))
        forget = logistic(self._gate("forget", sums, cell_state))
        opened = logistic(self._gate("input", sums, cell_state)) if sizes.input_gate else 1 - forget
        activation = _ACTIVATIONS[sizes.activation]
        cell_state = forget * cell_state + opened * activation(self._gate("cell", sums, cell_state))
        cell_state = _clip(cell_state, sizes.cell_clip)
        hidden = logistic(self._gate("output", sums, cell_state)) * activation(cell_state)
        return self._project(hidden), cell_state

    def _gate(self, gate: str, sums: dict[str, Array], cell_state: Array) -> Array:
        values, weights = sums[gate], self._weights
        if gate in weights.peepholes:
            values = values + weights.peepholes[gate] * cell_state
        if gate in weights.layer_norms:
            centred = values - values.mean(axis=-1, keepdims=True)
            variance = np.square(centred).mean(axis=-1, keepdims=True)
            values = centred / np.sqrt(variance + _LAYER_NORM_EPSILON) * weights.layer_norms[gate]
        gated: Array = values + weights.biases[gate]
        return gated

    def _project(self, hidden: Array) -> Array:
        if self._weights.projection is None:
            return hidden
        projected: Array = hidden @ self._weights.projection
        if self._weights.projection_bias is not None:
            projected += self._weights.projection_bias
        return _clip(projected, self._sizes.proj_clip)


def _weights(op: OperationView, cell: LstmCell) -> _Weights:
    def stacked(name: Callable[[str], str]) -> Array:
        return np.stack([real(op, name(gate)).T for gate in cell.gates])

    return _Weights(
        stacked(cell.input_weights),
        stacked(cell.auxiliary_weights) if cell.auxiliary_size else None,
        stacked(cell.recurrent_weights),
        {gate: real(op, cell.bias(gate)) for gate in cell.gates},
        {gate: real(op, cell.peephole_weights(gate)) for gate in cell.peephole_gates},
        {gate: real(op, cell.layer_norm_weights(gate)) for gate in cell.gates if cell.layer_norm},
        real(op, cell.projection_weights).T if cell.projection else None,
        real(op, cell.projection_bias) if op.optional(cell.projection_bias) is not None else None,
    )


def _clip(values: Array, limit: float) -> Array:
    return values.clip(-limit, limit) if limit > 0 else values

# SPDX-License-Identifier: Apache-2.0
"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import clamp_activation
from cpu_driver.operations.sequence import both_directions, narrowed, real, time_first, time_second
from nn_runtime.codes import OperationCode
from nn_runtime.operations.rnn import RnnCell, bidirectional_rnn, rnn_step, sequence_rnn
from nn_runtime.operations.sequence import Linking

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView


@computes(OperationCode.RNN)
def rnn(op: OperationView) -> tuple[Array, ...]:
    """Return the hidden state after one step, twice."""
    _, state = _run(op, rnn_step(op), real(op, "input")[None], None)
    return narrowed(op, (state, state))


@computes(OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(op: OperationView) -> tuple[Array, ...]:
    """Return the hidden state of every time step, and, where asked for, the last one."""
    sizes = sequence_rnn(op)
    outputs, state = _run(op, sizes.cell, time_first(op, "input", sizes.steps), None)
    return narrowed(op, (time_second(outputs, sizes.steps), state))


@computes(OperationCode.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(op: OperationView) -> tuple[Array, ...]:
    """Return the hidden states of both directions, merged or not, and, where asked for, the last ones."""
    sizes = bidirectional_rnn(op)
    inputs = time_first(op, "input", sizes.steps)
    auxiliary = None if sizes.linking == Linking.NONE else time_first(op, "aux_input", sizes.steps)
    weighted = auxiliary if sizes.linking == Linking.CROSS else None
    backward_inputs = auxiliary if auxiliary is not None and weighted is None else inputs
    forward, forward_state = _run(op, sizes.forward, inputs, weighted)
    backward, backward_state = _run(op, sizes.backward, backward_inputs, weighted, backward=True)
    outputs = both_directions(forward, backward, sizes.steps, sizes.merge_outputs)
    return narrowed(op, (*outputs, forward_state, backward_state))


def _run(
    op: OperationView, cell: RnnCell, inputs: Array, auxiliary: Array | None, backward: bool = False
) -> tuple[Array, Array]:
    """Return the hidden state after every step [max_time, batches, num_units], and the last one.

    `inputs` and `auxiliary` (where it has weights) are [max_time, batches, size].
    """
    outputs = np.matmul(inputs, real(op, cell.weights).T)
    outputs += real(op, cell.bias)
    if auxiliary is not None:
        outputs += np.matmul(auxiliary, real(op, cell.auxiliary_weights).T)
    recurrent, state = real(op, cell.recurrent_weights).T, real(op, cell.hidden_state)
    for step in reversed(range(len(inputs))) if backward else range(len(inputs)):
        outputs[step] += state @ recurrent
        clamp_activation(outputs[step], cell.activation)
        state = outputs[step]
    return outputs, state

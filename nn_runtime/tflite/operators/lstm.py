# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks."""

from __future__ import annotations

@converts(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM)
def _unidirectional_sequence_lstm(op: Operator) -> None:
    """20 inputs as NNAPI's, or 24 with layer normalisation; the states are variable tensors."""
    source = op.input(0, "input", rank=3)
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"only FLOAT32 data is supported, got {OperandCode(source.type).name}")
    time_major = op.option("time_major")
    batches = (source.shape or (0, 0))[1 if time_major else 0]
    weights = [op.or_omitted(position, source) for position in range(1, _LSTM_INPUTS - 2)]
    units = (op.input(2, "input_to_forget_weights", rank=2).shape or (0,))[0]
    projection = op.optional(16)
    outputs = units if projection is None else (projection.shape or (0,))[0]
    states = [
        op.variable(18, "output_state", (batches, outputs)),
        op.variable(19, "cell_state", (batches, units)),
    ]
    settings = [
        int32(op.option("fused_activation_function")),
        scalar(OperandCode.FLOAT32, op.real_option("cell_clip")),
        scalar(OperandCode.FLOAT32, op.real_option("proj_clip")),
        scalar(OperandCode.BOOL, bool(time_major)),
    ]
    normalisation = [op.or_omitted(position, source) for position in range(_LSTM_INPUTS, _LSTM_INPUTS + 4)]
    result, *next_states = op.emit_many(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        [source, *weights, *states, *settings, *normalisation],
        [op.prototype(), *states],
    )
    op.result(result)
    for position, state in enumerate(next_states, start=18):
        op.set_variable(position, state)

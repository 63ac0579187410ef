# SPDX-License-Identifier: Apache-2.0
"""TFLite's sequence LSTM of 8-bit data with a 16-bit cell state, as one QUANTIZED_LSTM a time step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.operator_inputs import TANH
from nn_runtime.tflite.operators.sequence import sequence_of, set_variables, steps_of
from nn_runtime.tflite.values import Value, int32, scalar

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_GATES = ("input", "forget", "cell", "output")
_PEEPHOLES, _BIASES, _PROJECTION_BIAS = range(9, 12), range(12, 16), 17
_OUTPUT_STATE, _CELL_STATE, _LAYER_NORMS = 18, 19, range(20, 24)
_HIDDEN = 4
"""Number of the intermediate tensor whose quantisation is the hidden state's."""
_GATE_SCALE = 2.0**-12
"""Scale of the gates' sums without layer normalisation: 3 integer bits of 16."""
_LEAST_CELL_SCALE = 2.0**-15
"""Of NNAPI's cell states. Smaller ones, of cells that stay near 0, have this one; LiteRT computes no TANH of them."""


def quantized_sequence_lstm(op: Operator) -> None:
    """Emit the steps: 20 or 24 inputs as those of the real LSTM; intermediates carry quantisations alone."""
    source = op.input(0, "input", rank=3)
    if op.option("fused_activation_function") != TANH:
        op.fail("the activation must be TANH for INT8 data")
    steps = steps_of(op, source)
    units = (op.input(2, "input_to_forget_weights", rank=2).shape or (0,))[0]
    projection = op.optional(16)
    outputs = units if projection is None else (projection.shape or (0,))[0]
    batches = (steps[0].shape or (0,))[0]
    output_state = op.variable(_OUTPUT_STATE, "output_state", (batches, outputs))
    cell_state = op.variable(_CELL_STATE, "cell_state", (batches, units), _LEAST_CELL_SCALE)
    weights = [_weights(op, position) for position in range(1, _OUTPUT_STATE)]
    settings = [*(_weights(op, position) for position in _LAYER_NORMS), *_clips(op), *_intermediates(op)]
    results = []
    for step in steps:
        output_state, cell_state, result = op.emit_many(
            OperationCode.QUANTIZED_LSTM,
            [step, *weights, output_state, cell_state, *settings],
            [output_state, cell_state, output_state],
        )
        results.append(result)
    op.result_of_same_quantization(sequence_of(op, results))
    set_variables(op, {_OUTPUT_STATE: output_state, _CELL_STATE: cell_state})


def _weights(op: Operator, position: int) -> Value:
    """Return weights or a bias in the type that NNAPI wants; INT8 ones have zero point 0."""
    value = op.optional(position)
    kind, name = _kind(position)
    if value is None:
        return Value(kind, (0,), 0.0 if kind == OperandCode.TENSOR_INT32 else 1.0, omitted=True)
    data = op.array(position, name)
    stored = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED if kind == OperandCode.TENSOR_QUANT8_SYMM else kind
    if value.type != stored or value.zero_point:
        op.fail(f"{name} (input {position}) must be {OperandCode(stored).name} with zero point 0")
    return replace(value, type=kind, data=data)


def _kind(position: int) -> tuple[OperandCode, str]:
    if position in _BIASES or position == _PROJECTION_BIAS:
        return OperandCode.TENSOR_INT32, "bias"
    if position in _PEEPHOLES:
        return OperandCode.TENSOR_QUANT16_SYMM, "peephole weights"
    if position in _LAYER_NORMS:
        return OperandCode.TENSOR_QUANT16_SYMM, "layer normalisation weights"
    return OperandCode.TENSOR_QUANT8_SYMM, "weights"


def _clips(op: Operator) -> list[Value]:
    return [scalar(OperandCode.FLOAT32, op.real_option(name)) for name in ("cell_clip", "proj_clip")]


def _intermediates(op: Operator) -> list[Value]:
    """Return the scales of the gates' sums, and zero point and scale of the hidden state."""
    scales = [_GATE_SCALE] * len(_GATES)
    if any(op.optional(position) is not None for position in _LAYER_NORMS):
        scales = [_quantization(op, number)[0] for number in range(len(_GATES))]
    hidden_scale, hidden_zero_point = _quantization(op, _HIDDEN)
    tail = [int32(hidden_zero_point), scalar(OperandCode.FLOAT32, hidden_scale)]
    return [*(scalar(OperandCode.FLOAT32, scale) for scale in scales), *tail]


def _quantization(op: Operator, number: int) -> tuple[float, int]:
    tensor = op.intermediate(number)
    quantization = None if tensor is None else tensor.quantization
    if quantization is None:
        op.fail(f"intermediate {number} must have a scale")
    return float(np.float32(quantization.scales[0])), int(quantization.zero_points[0])

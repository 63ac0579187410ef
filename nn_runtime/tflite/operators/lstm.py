# SPDX-License-Identifier: Apache-2.0
"""Long short-term memory over real numbers, and TFLite's basic cell. The states are variable tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operator_inputs import TANH
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.quantized_lstm import quantized_sequence_lstm
from nn_runtime.tflite.operators.sequence import bidirectional, check_directions, set_variables
from nn_runtime.tflite.values import Value, constant, int32, scalar

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.tflite.operator import Operator

_INPUTS = 20
"""Inputs of a cell: the data, 17 weights and biases, two states; four of layer normalisation may follow."""
_OUTPUT_STATE, _CELL_STATE = 18, 19
_RECURRENT = slice(4, 8)
"""Of the weights and biases."""
_BASIC_KERNEL, _BASIC_INPUTS, _BASIC_OUTPUTS = 1, 5, 4
_ACTIVATIONS = (0, 1, 3, TANH)


@converts(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs=24, version=4)
def _unidirectional_sequence_lstm(op: Operator) -> None:
    """20 inputs as NNAPI's, or 24 with layer normalisation."""
    source = op.input(0, "input", rank=3)
    if source.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED:
        if op.option("diagonal_recurrent_tensors"):
            op.fail("diagonal recurrent weights are supported for FLOAT32 data alone, got INT8")
        quantized_sequence_lstm(op)
        return
    _check_real(op, source)
    time_major = scalar(OperandCode.BOOL, bool(op.option("time_major")))
    weights, states, normalisation = _cell(op, source, (source.shape or (0, 0))[1 if op.option("time_major") else 0])
    result, *next_states = op.emit_many(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        [source, *weights, *states, *_settings(op), time_major, *normalisation],
        [op.prototype(), *states],
    )
    op.result(result)
    set_variables(op, {_OUTPUT_STATE: next_states[0], _CELL_STATE: next_states[1]})


@converts(BuiltinOperator.LSTM, inputs=24, version=4, outputs=None)
def _lstm(op: Operator) -> None:
    """One step: inputs as those of the sequence, or the basic kernel's five."""
    source = op.input(0, "input", rank=2)
    is_basic = op.option("kernel_type") == _BASIC_KERNEL
    op.check_output_count(_BASIC_OUTPUTS if is_basic else 1)
    if is_basic:
        _basic_lstm(op, source)
        return
    _check_real(op, source)
    weights, states, normalisation = _cell(op, source, (source.shape or (0,))[0])
    tensors = [source, *weights, *states, *_settings(op)]
    if not all(value.omitted for value in normalisation):
        tensors += normalisation
    _, *next_states, result = op.emit_many(OperationCode.LSTM, tensors, [source, *states, op.prototype()])
    op.result(result)
    set_variables(op, {_OUTPUT_STATE: next_states[0], _CELL_STATE: next_states[1]})


def _check_real(op: Operator, source: Value) -> None:
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"only FLOAT32 and INT8 data is supported, got {OperandCode(source.type).name}")


def _cell(op: Operator, source: Value, batches: int) -> tuple[list[Value], list[Value], list[Value]]:
    """Return weights and biases, the two states, and the weights of layer normalisation."""
    weights = [op.or_omitted(position, source) for position in range(1, _OUTPUT_STATE)]
    if op.option("diagonal_recurrent_tensors"):
        weights[_RECURRENT] = [_diagonal(op, vector) for vector in weights[_RECURRENT]]
    units = (op.input(2, "input_to_forget_weights", rank=2).shape or (0,))[0]
    projection = op.optional(16)
    outputs = units if projection is None else (projection.shape or (0,))[0]
    states = [
        op.variable(_OUTPUT_STATE, "output_state", (batches, outputs)),
        op.variable(_CELL_STATE, "cell_state", (batches, units)),
    ]
    return weights, states, [op.or_omitted(position, source) for position in range(_INPUTS, _INPUTS + 4)]


def _diagonal(op: Operator, vector: Value) -> Value:
    """Return the matrix of which a file has the diagonal alone."""
    if vector.omitted:
        return vector
    if vector.data is None or vector.rank != 1:
        op.fail(f"diagonal recurrent weights must be constant vectors, got {list(vector.shape or ())}")
    op.spend(vector.data.size**2)
    return constant(np.diag(vector.data))


def _settings(op: Operator) -> list[Value]:
    """Return activation, clip of the cell state, clip of the projection."""
    clips = (scalar(OperandCode.FLOAT32, op.real_option(name)) for name in ("cell_clip", "proj_clip"))
    return [int32(_activation(op)), *clips]


def _activation(op: Operator) -> int:
    """Return the activation of cells, whose numbers are those of NNAPI; it has a further one."""
    number = op.option("fused_activation_function")
    if number not in _ACTIVATIONS:
        op.fail(f"the activation must be 0 (NONE), 1 (RELU), 3 (RELU6) or 4 (TANH), got {number}")
    return number


def _basic_lstm(op: Operator, source: Value) -> None:
    """(input, previous output, weights [4 * units, input + units], biases, cell state) of gates i, c, f, o.

    The columns of the weights go with the input, then with the output. Outputs: output, cell state, and two that are
    of no use.
    """
    op.check_input_count(_BASIC_INPUTS)
    previous, cell_state = op.input(1, "prev_activation", rank=2), op.input(4, "prev_state", rank=2)
    weights = op.input(2, "weights", rank=2)
    units, size = (cell_state.shape or (0, 0))[1], (source.shape or (0, 0))[1]
    if weights.shape != (4 * units, size + units):
        op.fail(f"weights (input 2) must be {[4 * units, size + units]}, got {list(weights.shape or ())}")
    if op.option("fused_activation_function") != TANH:
        op.fail("the activation of the basic kernel must be TANH")
    matrices = _gates(op, weights, op.array(2, "weights"))
    biases = _gates(op, op.input(3, "biases"), op.array(3, "biases"))
    biases = [replace(bias, scale=source.scale * weights.scale) for bias in biases]
    inputs = [_columns(matrix, slice(0, size)) for matrix in matrices]
    recurrent = [_columns(matrix, slice(size, None)) for matrix in matrices]
    if source.is_quantized:
        tensors = [source, *inputs, *recurrent, *biases, cell_state, previous]
        state, output = op.emit_many(OperationCode.QUANTIZED_16BIT_LSTM, tensors, [cell_state, previous])
    else:
        peepholes = projection = [Value(source.type, (0,), omitted=True)]
        tensors = [source, *inputs, *recurrent, *peepholes * 3, *biases, *projection * 2, previous, cell_state]
        results = [source, previous, cell_state, previous]
        _, _, state, output = op.emit_many(OperationCode.LSTM, [*tensors, *_settings(op)], results)
    op.result_of_same_quantization(output, 0)
    op.result_of_same_quantization(state, 1)


def _gates(op: Operator, value: Value, data: Array) -> list[Value]:
    """Return the parts of a constant for gates input, forget, cell, output, from TFLite's order i, c, f, o."""
    if data.shape[0] % 4:
        op.fail(f"{list(data.shape)} must divide into 4 gates")
    count = data.shape[0] // 4
    parts = [np.ascontiguousarray(data[gate * count : (gate + 1) * count]) for gate in (0, 2, 1, 3)]
    return [replace(value, shape=part.shape, data=part) for part in parts]


def _columns(matrix: Value, columns: slice) -> Value:
    if matrix.data is None:
        return matrix
    part = np.ascontiguousarray(matrix.data[:, columns])
    return replace(matrix, shape=part.shape, data=part)


@converts(BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM, inputs=48, version=3, outputs=None)
def _bidirectional_sequence_lstm(op: Operator) -> None:
    """48 inputs: the data, 17 weights a direction, four states, an auxiliary input and its 8 weights."""
    source = op.input(0, "input", rank=3)
    check_directions(op)
    _check_real(op, source)
    batches = (source.shape or (0, 0))[1 if op.option("time_major") else 0]
    weights = [op.or_omitted(position, source) for position in range(1, 35)]
    states = []
    for position, name in zip(range(35, 39), ("fw_output", "fw_cell", "bw_output", "bw_cell"), strict=True):
        first = 1 if name.startswith("fw") else 18
        units = (op.input(first + 1, "input_to_forget_weights", rank=2).shape or (0,))[0]
        projection = op.optional(first + 15)
        if name.endswith("output") and projection is not None:
            units = (projection.shape or (0,))[0]
        states.append(op.variable(position, f"{name}_state", (batches, units)))
    auxiliary = [op.or_omitted(position, source) for position in range(39, 48)]
    flags = [scalar(OperandCode.BOOL, bool(op.option(name))) for name in ("merge_outputs", "time_major")]
    omitted = [Value(source.type, (0,), omitted=True)] * 8
    tensors = [source, *weights, *states, *auxiliary, *_settings(op), *flags, *omitted]
    by_position = dict(zip(range(35, 39), states, strict=True))
    bidirectional(op, OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM, tensors, by_position)

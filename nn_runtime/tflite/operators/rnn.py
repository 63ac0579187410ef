# SPDX-License-Identifier: Apache-2.0
"""Basic recurrent networks and SVDF. The states are variable tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operator_inputs import SIGN_BIT, TANH
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.sequence import bidirectional, check_directions, sequence_of, set_variables, steps_of
from nn_runtime.tflite.values import Value, int32, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator

_REFUSED = (SIGN_BIT,)


def _is_tanh(op: Operator) -> bool:
    """Tell whether the activation is TANH, which NNAPI's fused ones lack."""
    return op.option("fused_activation_function") == TANH


def _real_input(op: Operator, rank: int) -> Value:
    source = op.input(0, "input", rank=rank)
    if source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"only FLOAT32 data is supported, got {OperandCode(source.type).name}")
    return source


def _cell(op: Operator, source: Value, first: int, batches: int) -> list[Value]:
    """Return weights, recurrent weights, bias and state, inputs from `first` on."""
    names = ("weights", "recurrent_weights", "bias")
    values = [op.matched(op.input(first + at, name), source) for at, name in enumerate(names)]
    units = (values[0].shape or (0,))[0]
    return [*values, op.variable(first + 3, "hidden_state", (batches, units))]


def _tanh_step(op: Operator, source: Value, cell: Sequence[Value], state: Value) -> Value:
    """Return tanh(W x + R h + b)."""
    weights, recurrent, bias = cell
    none = int32(FuseCode.NONE)
    zeros = op.zeros_like(bias)
    own = op.emit(OperationCode.FULLY_CONNECTED, [source, weights, bias, none], state)
    past = op.emit(OperationCode.FULLY_CONNECTED, [state, recurrent, zeros, none], state)
    return op.emit(OperationCode.TANH, [op.emit(OperationCode.ADD, [own, past, none], state)], state)


def _tanh_sequence(op: Operator, steps: Sequence[Value], cell: Sequence[Value]) -> list[Value]:
    *weights, state = cell
    states = []
    for step in steps:
        state = _tanh_step(op, step, weights, state)
        states.append(state)
    return states


@converts(BuiltinOperator.RNN, inputs=5, version=3)
def _rnn(op: Operator) -> None:
    """(input, weights, recurrent weights, bias, state): one step."""
    source = _real_input(op, 2)
    cell = _cell(op, source, 1, (source.shape or (0,))[0])
    if _is_tanh(op):
        state = result = _tanh_sequence(op, [source], cell)[0]
    else:
        state, result = op.emit_many(OperationCode.RNN, [source, *cell, int32(op.activation(_REFUSED))], [cell[-1]] * 2)
    op.result(result)
    set_variables(op, {4: state})


@converts(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN, inputs=5, version=3)
def _unidirectional_sequence_rnn(op: Operator) -> None:
    """(input, weights, recurrent weights, bias, state)."""
    source = _real_input(op, 3)
    cell = _cell(op, source, 1, (source.shape or (0, 0))[1 if op.option("time_major") else 0])
    if _is_tanh(op):
        states = _tanh_sequence(op, steps_of(op, source), cell)
        state, result = states[-1], sequence_of(op, states)
    else:
        inputs = [source, *cell, int32(op.activation(_REFUSED)), int32(op.option("time_major"))]
        result, state = op.emit_many(OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN, inputs, [op.prototype(), cell[-1]])
    op.result(result)
    set_variables(op, {4: state})


@converts(BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN, inputs=12, version=3, outputs=None)
def _bidirectional_sequence_rnn(op: Operator) -> None:
    """(input, 4 of a forward cell, 4 of a backward one, auxiliary input, weights of it forward and backward)."""
    source = _real_input(op, 3)
    check_directions(op)
    batches = (source.shape or (0, 0))[1 if op.option("time_major") else 0]
    cells = [_cell(op, source, first, batches) for first in (1, 5)]
    auxiliary = [op.or_omitted(position, source) for position in range(9, 12)]
    if _is_tanh(op):
        if not all(value.omitted for value in auxiliary):
            op.fail("an auxiliary input with activation TANH is not supported")
        _tanh_directions(op, source, cells)
        return
    flags = [scalar(OperandCode.BOOL, bool(op.option(name))) for name in ("time_major", "merge_outputs")]
    inputs = [source, *cells[0], *cells[1], *auxiliary, int32(op.activation(_REFUSED)), *flags]
    states = {4: cells[0][-1], 8: cells[1][-1]}
    bidirectional(op, OperationCode.BIDIRECTIONAL_SEQUENCE_RNN, inputs, states)


def _tanh_directions(op: Operator, source: Value, cells: Sequence[Sequence[Value]]) -> None:
    steps = steps_of(op, source)
    forward, backward = _tanh_sequence(op, steps, cells[0]), _tanh_sequence(op, steps[::-1], cells[1])
    results = [sequence_of(op, forward), sequence_of(op, backward[::-1])]
    if op.option("merge_outputs"):
        op.result(op.emit(OperationCode.CONCATENATION, [*results, int32(2)], results[0]))
    else:
        for position, result in enumerate(results):
            op.result(result, position)
    set_variables(op, {4: forward[-1], 8: backward[-1]})


@converts(BuiltinOperator.SVDF, inputs=5, version=4)
def _svdf(op: Operator) -> None:
    """(input, weights of features, weights of time, bias or none, state); 8-bit data is computed in float32."""
    given = op.input(0, "input", rank=2)
    source = op.dequantize(given) if given.type in QUANT8_TYPES else _real_input(op, 2)
    features, times = (op.matched(op.input(at, name, rank=2), source) for at, name in ((1, "features"), (2, "times")))
    filters, memory = times.shape or (0, 0)
    state = op.variable(4, "state", ((source.shape or (0,))[0], filters * memory))
    settings = [int32(op.option("rank")), int32(op.activation(_REFUSED))]
    inputs = [source, features, times, op.or_omitted(3, source), state, *settings]
    next_state, result = op.emit_many(OperationCode.SVDF, inputs, [state, state])
    if _is_tanh(op):
        result = op.emit(OperationCode.TANH, [result], result)
    op.result(op.emit(OperationCode.QUANTIZE, [result]) if op.prototype().is_quantized else result)
    set_variables(op, {4: next_state})

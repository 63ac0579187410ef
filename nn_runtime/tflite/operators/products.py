# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED and BATCH_MATMUL: matrix products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode, PaddingCode
from nn_runtime.operand import ChannelQuant
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operator_inputs import SIGN_BIT, TANH
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, int32, scalar

if TYPE_CHECKING:
    from nn_runtime.codes import FuseCode
    from nn_runtime.tflite.operator import Operator


@converts(BuiltinOperator.FULLY_CONNECTED, inputs=3, version=14)
def _fully_connected(op: Operator) -> None:
    """(input, weights [units, input_size], bias or none); the result is 2-D unless keep_num_dims."""
    if op.option("weights_format"):
        op.fail("shuffled weights are not supported")
    source = op.input(0, "input")
    weights = op.weights(1, "weights", 2, source)
    units, size = weights.shape or (0, 0)
    shape = source.shape or ()
    bias, activation = op.bias(2, source, weights, units), op.activation(refused=(TANH, SIGN_BIT))
    if size == 0 or math.prod(shape) % size:
        op.fail(f"input (input 0) must have whole rows of {size} elements, got {list(shape)}")
    if weights.channel_quant is None:
        rows = source if 2 <= len(shape) <= 4 else op.reshape(source, (-1, size))
        result = op.emit(OperationCode.FULLY_CONNECTED, [rows, weights, bias, int32(activation)])
    else:
        result = _per_channel_product(op, source, weights, bias, activation)
    op.result(op.reshape(result, (*shape[:-1], units)) if op.option("keep_num_dims") else result)


def _per_channel_product(op: Operator, source: Value, weights: Value, bias: Value, activation: FuseCode) -> Value:
    """Return a FULLY_CONNECTED with per-channel weights, as a convolution of 1 x 1 pixels."""
    units, size = weights.shape or (0, 0)
    if weights.data is None or weights.channel_quant is None or weights.channel_quant.channel_dim != 0:
        op.fail("weights (input 1) must have their channels in dimension 0")
    filters = Value(
        weights.type,
        (units, 1, 1, size),
        channel_quant=ChannelQuant(weights.channel_quant.scales, 0),
        data=weights.data.reshape(units, 1, 1, size),
    )
    rows = op.reshape(source, (math.prod(source.shape or ()) // size, 1, 1, size))
    window = [int32(PaddingCode.VALID), int32(1), int32(1), int32(activation)]
    return op.reshape(op.emit(OperationCode.CONV_2D, [rows, filters, bias, *window]), (-1, units))


@converts(BuiltinOperator.BATCH_MATMUL, inputs=2, version=4)
def _batch_matmul(op: Operator) -> None:
    """(lhs [..., rows, depth], rhs [..., depth, columns]); leading dimensions are broadcast."""
    lhs, rhs = op.input(0, "lhs"), op.input(1, "rhs")
    lhs, rhs = op.matched(lhs, rhs), op.matched(rhs, lhs)
    if lhs.rank < 2 or rhs.rank < 2:
        op.fail(f"both inputs must have rank 2 at least, got {list(lhs.shape or ())} and {list(rhs.shape or ())}")
    leading = _leading_dimensions(op, lhs, rhs)
    sides = [op.broadcast(value, (*leading, *(value.shape or ())[-2:])) for value in (lhs, rhs)]
    if len(leading) > 2:
        sides = [op.reshape(value, (math.prod(leading), *(value.shape or ())[-2:])) for value in sides]
    flags = [scalar(OperandCode.BOOL, bool(op.option(name))) for name in ("adj_x", "adj_y")]
    if lhs.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED and op.prototype().type != lhs.type:
        op.fail(f"the output must be INT8 as the inputs, got {op.output_tensor().type.name}")
    result = op.emit(OperationCode.BATCH_MATMUL, [*sides, *flags])
    op.result(op.reshape(result, (*leading, *(result.shape or ())[-2:])) if len(leading) > 2 else result)


def _leading_dimensions(op: Operator, lhs: Value, rhs: Value) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes((lhs.shape or ())[:-2], (rhs.shape or ())[:-2])
    except ValueError:
        op.fail(f"the batches of lhs {list(lhs.shape or ())} and rhs {list(rhs.shape or ())} must go together")

# SPDX-License-Identifier: Apache-2.0
"""Files with 16-bit activations and 8-bit weights, as networks of real numbers.

NNAPI has 16-bit types for states of LSTM alone. TFLite's 16-bit integers are real numbers on a grid of a 65,536th of
their range, so real ones in their place agree with its kernels up to steps of that grid. Beyond the range, which is
small where few examples told it, its kernels saturate; so do real numbers (`saturation`). The interface of the network
stays the file's: its session takes and gives 16-bit integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.errors import BadData
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.saturation import bounds_of
from nn_runtime.tflite.tensor_reader import quoted
from nn_runtime.tflite.types import TensorType, TfliteQuantization

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Array
    from nn_runtime.tflite.types import TfliteModel, TfliteOperator, TfliteSubgraph, TfliteTensor

_BYTES = frozenset({TensorType.INT8, TensorType.UINT8})
_INTEGERS = frozenset({TensorType.INT32, TensorType.INT64})
_CONSTANTS = _BYTES | _INTEGERS | {TensorType.INT4, TensorType.INT2}
"""Types of weights and biases."""
_WITH_WEIGHTS = frozenset(
    {
        *(BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D, BuiltinOperator.TRANSPOSE_CONV),
        *(BuiltinOperator.FULLY_CONNECTED, BuiltinOperator.SVDF),
        *(BuiltinOperator.RNN, BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN),
        *(BuiltinOperator.LSTM, BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM),
        *(BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN, BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM),
    }
)
_FIRST_WEIGHTS = 1
"""Input of these from which on constants are weights and biases; others have shapes and axes in integers."""
_BIASES = {
    **dict.fromkeys(
        (BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D, BuiltinOperator.FULLY_CONNECTED), (0, 2)
    ),
    BuiltinOperator.TRANSPOSE_CONV: (2, 3),
}
"""Inputs of these that are data and bias; weights are input 1."""
_WITH_STATES = frozenset({BuiltinOperator.LSTM, BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM})


def with_real_numbers(model: TfliteModel) -> TfliteModel:
    """Return a model whose 16-bit quantised tensors, and weights and biases beside them, are FLOAT32; others stay.

    Weights that stayed bytes would look like those of dynamic range quantisation, whose data may be made bytes, too.
    Raises BadData where the integers themselves are asked for, and for tensors of several scales that are no constants.
    """
    subgraphs = tuple(_with_real_numbers(subgraph) for subgraph in model.subgraphs)
    changed = any(new is not old for new, old in zip(subgraphs, model.subgraphs, strict=True))
    return replace(model, subgraphs=subgraphs) if changed else model


def _with_real_numbers(subgraph: TfliteSubgraph) -> TfliteSubgraph:
    tensors = list(subgraph.tensors)
    states = {
        at for operator in subgraph.operators if _has_16_bit_states(operator, tensors) for at in _tensors(operator)
    }
    real = {at for at, tensor in enumerate(tensors) if _is_16_bit(tensor)} - states
    if not real:
        return subgraph
    for operator in subgraph.operators:
        if real.isdisjoint(_tensors(operator)):
            continue
        if operator.code == BuiltinOperator.CAST:
            raise BadData(f"operator {operator.index} CAST: of quantised INT16 tensors it is not supported")
        if operator.code in _WITH_WEIGHTS:
            _give_bias_a_scale(operator, tensors)
            real |= {at for at in operator.inputs[_FIRST_WEIGHTS:] if at >= 0 and _is_constant(tensors[at])}
    for at in real:
        tensor = tensors[at]
        if tensor.data is None and tensor.quantization is not None and tensor.quantization.scales.size > 1:
            raise BadData(f"tensor {quoted(tensor.name)}: several scales are supported for constants alone")
        tensors[at] = replace(
            tensor,
            type=TensorType.FLOAT32,
            quantization=None,
            data=None if tensor.data is None else _real(tensor),
            bounds=bounds_of(tensor) if _is_16_bit(tensor) else None,
        )
    return replace(subgraph, tensors=tuple(tensors))


def _give_bias_a_scale(operator: TfliteOperator, tensors: list[TfliteTensor]) -> None:
    """Give integers without a scale that of the products to which they are added, as TFLite's kernels have it."""
    places = (*_BIASES.get(operator.code, ()), 1)
    if len(places) < 3 or max(places) >= len(operator.inputs) or min(operator.inputs[at] for at in places) < 0:
        return
    source, bias, weights = (tensors[operator.inputs[at]] for at in places)
    if (
        bias.quantization is not None
        or bias.type not in _INTEGERS
        or not source.quantization
        or not weights.quantization
    ):
        return
    scales = source.quantization.scales[0] * weights.quantization.scales
    if scales.size == 1 or bias.shape == scales.shape:
        quantization = TfliteQuantization(scales, np.zeros(scales.size, np.int64), 0)
        tensors[operator.inputs[places[1]]] = replace(bias, quantization=quantization)


def _is_16_bit(tensor: TfliteTensor) -> bool:
    return tensor.type is TensorType.INT16 and tensor.quantization is not None


def _tensors(operator: TfliteOperator) -> Iterable[int]:
    return (*operator.inputs, *operator.outputs, *operator.intermediates)


def _has_16_bit_states(operator: TfliteOperator, tensors: list[TfliteTensor]) -> bool:
    """Whether it is one of NNAPI's: bytes, with 16 bits only for what it keeps."""
    first = operator.inputs[0] if operator.inputs else -1
    return operator.code in _WITH_STATES and first >= 0 and tensors[first].type in _BYTES


def _is_constant(tensor: TfliteTensor) -> bool:
    return tensor.type in _CONSTANTS and tensor.data is not None and tensor.quantization is not None


def _real(tensor: TfliteTensor) -> Array:
    """Return a constant's real numbers, with one scale or one for each index of a dimension."""
    quantization = tensor.quantization
    if tensor.data is None or quantization is None:
        raise ValueError(f"tensor {tensor.name!r} is no quantised constant")
    shape = [1] * len(tensor.shape)
    if quantization.scales.size > 1:
        shape[quantization.quantized_dimension] = quantization.scales.size
    scales, zero_points = (
        part.reshape(shape) if part.size > 1 else part.reshape(-1)[0]
        for part in (quantization.scales.astype(np.float64), quantization.zero_points)
    )
    real: Array = ((tensor.data.astype(np.float64) - zero_points) * scales).astype(np.float32)
    return real

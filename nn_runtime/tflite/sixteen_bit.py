# SPDX-License-Identifier: Apache-2.0
"""Files with 16-bit activations and 8-bit weights, as networks of real numbers.

NNAPI has 16-bit types for states of LSTM alone. TFLite's 16-bit integers are real numbers on a grid of a 65,536th of
their range, so real ones in their place agree with its kernels up to steps of that grid. The interface of the network
stays the file's: its session takes and gives 16-bit integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tflite.BuiltinOperator import BuiltinOperator

from nn_runtime.tflite.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Array
    from nn_runtime.tflite.types import TfliteModel, TfliteOperator, TfliteSubgraph, TfliteTensor

_BYTES = frozenset({TensorType.INT8, TensorType.UINT8})
_BIASES = frozenset({TensorType.INT32, TensorType.INT64})
_WITH_STATES = frozenset({BuiltinOperator.LSTM, BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM})


def with_real_numbers(model: TfliteModel) -> TfliteModel:
    """Return a model whose 16-bit quantised tensors, and biases beside them, are FLOAT32; others stay."""
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
        if not real.isdisjoint(_tensors(operator)):
            real |= {at for at in operator.inputs if at >= 0 and _is_bias(tensors[at])}
    for at in real:
        tensor = tensors[at]
        tensors[at] = replace(
            tensor, type=TensorType.FLOAT32, quantization=None, data=None if tensor.data is None else _real(tensor)
        )
    return replace(subgraph, tensors=tuple(tensors))


def _is_16_bit(tensor: TfliteTensor) -> bool:
    return tensor.type is TensorType.INT16 and tensor.quantization is not None


def _tensors(operator: TfliteOperator) -> Iterable[int]:
    return (*operator.inputs, *operator.outputs, *operator.intermediates)


def _has_16_bit_states(operator: TfliteOperator, tensors: list[TfliteTensor]) -> bool:
    """Whether it is one of NNAPI's: bytes, with 16 bits only for what it keeps."""
    first = operator.inputs[0] if operator.inputs else -1
    return operator.code in _WITH_STATES and first >= 0 and tensors[first].type in _BYTES


def _is_bias(tensor: TfliteTensor) -> bool:
    return tensor.type in _BIASES and tensor.data is not None and tensor.quantization is not None


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

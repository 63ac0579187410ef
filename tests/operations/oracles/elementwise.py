# SPDX-License-Identifier: Apache-2.0
"""Oracles of the operations that work element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.operations.oracles.layer import Array, Layer, Oracle

QUANT8 = OperandCode.TENSOR_QUANT8_ASYMM
BYTES = (0, 255)


def _of_two(function: Callable[[Array, Array], Array], first: str = "input0", second: str = "input1") -> Oracle:
    return lambda layer: [function(layer.real(first), layer.real(second))]


def _activated_of_two(function: Callable[[Array, Array], Array]) -> Oracle:
    return lambda layer: [layer.activated(function(layer.real("input0"), layer.real("input1")))]


def _of_one(function: Callable[[Array], Array]) -> Oracle:
    return lambda layer: [function(layer.real("input"))]


def _divide(layer: Layer) -> list[Array]:
    quotient = layer.real("input0") / layer.real("input1")
    whole = layer.value("input0").type == OperandCode.TENSOR_INT32
    return [layer.activated(np.floor(quotient) if whole else quotient)]


def _prelu(source: Array, alpha: Array) -> Array:
    return np.where(source < 0, alpha * source, source)


def _compared_as_float32(function: Callable[[Array, Array], Array]) -> Oracle:
    """The specification dequantises both sides to float32."""
    return _of_two(lambda a, b: function(a.astype(np.float32), b.astype(np.float32)))


def _logistic(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _elu(layer: Layer) -> list[Array]:
    x = layer.real("input")
    return [np.where(x > 0, x, layer.number("alpha") * np.expm1(x))]


def _select(layer: Layer) -> list[Array]:
    chosen = layer.raw("condition") != 0
    return [np.where(chosen, layer.real("input_true"), layer.real("input_false"))]


def _dequantized(layer: Layer) -> list[Array]:
    return [layer.real("input")]


def _cast(layer: Layer) -> list[Array]:
    """Elements as stored, whatever the scale: towards zero for whole numbers, cut to the range of a byte."""
    source, wanted = layer.raw("input"), layer.outputs[0].type
    if source.dtype.kind == "b" or wanted == layer.value("input").type:
        return [source]
    numbers = source.astype(np.float64)
    if wanted == OperandCode.TENSOR_INT32:
        return [np.trunc(numbers).astype(np.int64)]
    return [np.clip(np.trunc(numbers), *BYTES).astype(np.int64)] if wanted == QUANT8 else [numbers]


FAMILIES: dict[str, dict[OperationCode, Oracle]] = {
    "elementwise": {
        OperationCode.ADD: _activated_of_two(lambda a, b: a + b),
        OperationCode.SUB: _activated_of_two(lambda a, b: a - b),
        OperationCode.MUL: _activated_of_two(lambda a, b: a * b),
        OperationCode.DIV: _divide,
        OperationCode.MAXIMUM: _of_two(lambda a, b: np.where(a > b, a, b)),
        OperationCode.MINIMUM: _of_two(lambda a, b: np.where(a < b, a, b)),
        OperationCode.POW: _of_two(lambda a, b: np.exp(b * np.log(a)), "base", "exponent"),
        OperationCode.PRELU: _of_two(_prelu, "input", "alpha"),
    },
    "unary": {
        OperationCode.ABS: _of_one(lambda x: np.where(x < 0, -x, x)),
        OperationCode.NEG: _of_one(lambda x: 0.0 - x),
        OperationCode.EXP: _of_one(np.exp),
        OperationCode.LOG: _of_one(np.log),
        OperationCode.SQRT: _of_one(np.sqrt),
        OperationCode.RSQRT: _of_one(lambda x: x**-0.5),
        OperationCode.SIN: _of_one(np.sin),
        OperationCode.FLOOR: _of_one(np.floor),
    },
    "comparison": {
        OperationCode.EQUAL: _compared_as_float32(lambda a, b: a == b),
        OperationCode.NOT_EQUAL: _compared_as_float32(lambda a, b: a != b),
        OperationCode.GREATER: _compared_as_float32(lambda a, b: a > b),
        OperationCode.GREATER_EQUAL: _compared_as_float32(lambda a, b: a >= b),
        OperationCode.LESS: _compared_as_float32(lambda a, b: a < b),
        OperationCode.LESS_EQUAL: _compared_as_float32(lambda a, b: a <= b),
    },
    "logical": {
        OperationCode.LOGICAL_AND: _of_two(lambda a, b: a * b != 0),
        OperationCode.LOGICAL_OR: _of_two(lambda a, b: a + b != 0),
        OperationCode.LOGICAL_NOT: _of_one(lambda x: x == 0),
    },
    "activation": {
        OperationCode.RELU: _of_one(lambda x: np.clip(x, 0.0, np.inf)),
        OperationCode.RELU1: _of_one(lambda x: np.clip(x, -1.0, 1.0)),
        OperationCode.RELU6: _of_one(lambda x: np.clip(x, 0.0, 6.0)),
        OperationCode.LOGISTIC: _of_one(_logistic),
        OperationCode.TANH: _of_one(lambda x: 2.0 * _logistic(2.0 * x) - 1.0),
        OperationCode.ELU: _elu,
        OperationCode.HARD_SWISH: _of_one(lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0),
    },
    "select": {OperationCode.SELECT: _select},
    "quantize": {
        OperationCode.QUANTIZE: _dequantized,
        OperationCode.DEQUANTIZE: _dequantized,
        OperationCode.CAST: _cast,
    },
}

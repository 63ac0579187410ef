# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, PRELU."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.kept import kept
from cpu_driver.operations import computes
from cpu_driver.operations.broadcast import broadcast
from cpu_driver.operations.quantize import requantized
from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of, element_count
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters, mul_multiplier, prelu_multipliers
from nn_runtime.quantization import (
    FixedPointMultiplier,
    activation_range_float,
    activation_range_quantized,
    multiply_by_quantized_multiplier,
    quantized_type,
)
from nn_runtime.requantization import Codes
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.operand import Array, OperandType
    from nn_runtime.operations import OperationView

_TABLE_SIZE = 1 << 11
"""From so many elements on it is soon cheaper to compute the results of all pairs once."""


@computes(OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV)
def elementwise(op: OperationView) -> tuple[Array, ...]:
    """Return the broadcast sum, difference, product or quotient; int32 wraps and divides to the floor, x / 0 = 0."""
    if op.data_type in QUANT8_TYPES:
        return (_quantized(op, "input0", "input1"),)
    function = _FUNCTIONS[op.code]
    if op.data_type == OperandCode.TENSOR_INT32:
        if op.code == OperationCode.DIV:
            function = np.floor_divide  # gives 0 for x / 0 and -2^31 for -2^31 / -1, with a warning
        return (broadcast(function, op.array("input0"), op.array("input1")),)
    first, second = (op.array(name).astype(np.float32, copy=False) for name in ("input0", "input1"))
    result = broadcast(function, first, second)
    low, high = activation_range_float(op.fuse_code())
    if low != -np.inf:
        result = np.clip(result, low, high, out=result)
    return (result.astype(dtype_of(op.data_type), copy=False),)


_FUNCTIONS: dict[int, np.ufunc] = {
    OperationCode.ADD: np.add,
    OperationCode.SUB: np.subtract,
    OperationCode.MUL: np.multiply,
    OperationCode.DIV: np.divide,
}


def _quantized(op: OperationView, *names: str) -> Array:
    return broadcast(kept(op, _function, names), *map(op.array, names))


@dataclass(frozen=True)
class _Task:
    """What an operation makes of pairs of codes."""

    code: int
    source0: OperandType
    source1: OperandType
    output: OperandType
    bounds: tuple[int, int]


def _function(op: OperationView) -> Callable[[Array, Array], Array]:
    """Return the function that makes the results of two broadcast arrays of codes, of the sizes of the inputs."""
    is_prelu, output = op.code == OperationCode.PRELU, op.outputs[0]
    names = ("input", "alpha") if is_prelu else ("input0", "input1")
    bounds = activation_range_quantized(FuseCode.NONE if is_prelu else op.fuse_code(), output)
    source0, source1 = (quantized_type(op.input(name)) for name in names)
    task = _Task(op.code, source0, source1, quantized_type(output), bounds)
    if max(element_count(op.dimensions(name)) for name in names) < _TABLE_SIZE:
        return functools.partial(_combine, task)
    sums = _sums(task) if op.code in (OperationCode.ADD, OperationCode.SUB) else None
    return sums or functools.partial(_looked_up, _table(task))


@functools.lru_cache(maxsize=128)
def _table(task: _Task) -> Array:
    """Return the results of all pairs of codes [first, second], both as bytes (64 KiB)."""
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(task.output.type))
    return _combine(task, codes[:, np.newaxis], codes)


def _looked_up(table: Array, first: Array, second: Array) -> Array:
    """Return the results of two broadcast arrays of codes from a table of all pairs."""
    bytes0, bytes1 = first.view(np.uint8), second.view(np.uint8)
    if bytes1.size == 1:
        results: Array = table[:, bytes1.item()].take(bytes0)
    elif bytes0.size == 1:
        results = table[bytes0.item()].take(bytes1)
    else:
        results = table.take(np.bitwise_or(np.multiply(bytes0, np.uint16(256), dtype=np.uint16), bytes1))
    return results


@dataclass(frozen=True)
class _Sums:
    """ADD or SUB in float32: floor(first * factor0 + second * factor1 + offset), clamped."""

    factor0: np.float32
    factor1: np.float32
    offset: np.float32
    codes: Codes

    def __call__(self, first: Array, second: Array) -> Array:
        """Return the results of two broadcast arrays of codes."""
        totals, addends = first.astype(np.float32), second.astype(np.float32)
        totals *= self.factor0
        addends *= self.factor1
        totals = np.add(totals, addends, out=totals if totals.shape == addends.shape else None)
        totals += self.offset
        results = np.empty(totals.shape, first.dtype)
        self.codes.write(totals, results)
        return results


@functools.lru_cache(maxsize=128)
def _sums(task: _Task) -> _Sums | None:
    """Return float32 arithmetic that gives the specified results for all pairs of codes, if it is found."""
    table, source0, source1, output = _table(task), task.source0, task.source1, task.output
    every = np.arange(256, dtype=np.uint8).view(table.dtype)
    codes = Codes(task.bounds, table.dtype)
    real0, real1 = source0.scale / output.scale, source1.scale / output.scale
    if task.code == OperationCode.SUB:
        real1 = -real1
    offset = output.zero_point + codes.flip + 0.5 - source0.zero_point * real0 - source1.zero_point * real1
    for units0, units1, nudge in itertools.product((0, 1, -1), (0, 1, -1), (0, 1, -1, 2, -2)):
        factor0, factor1 = (
            np.float32(real * (1 + units * 2.0**-23)) for real, units in ((real0, units0), (real1, units1))
        )
        found = _Sums(factor0, factor1, np.float32(offset + nudge * 2.0**-17), codes)
        if np.array_equal(found(every[:, np.newaxis], every), table):
            return found
    return None


def _combine(task: _Task, first: Array, second: Array) -> Array:
    """Return the result of each pair in the arithmetic of TFLite's reference kernels."""
    source0, source1, output = task.source0, task.source1, task.output
    centred0, centred1 = first.astype(np.int64) - source0.zero_point, second.astype(np.int64) - source1.zero_point
    scales = source0.scale, source1.scale, output.scale
    if task.code == OperationCode.PRELU:
        multipliers = prelu_multipliers(*scales)
        sloped = _rescaled(centred0 * centred1, multipliers.negative)
        real = np.where(centred0 >= 0, _rescaled(centred0, multipliers.positive), sloped)
    elif task.code == OperationCode.MUL:
        real = _rescaled(centred0 * centred1, mul_multiplier(*scales))
    else:
        parameters = add_parameters(*scales)
        scaled0 = _rescaled(centred0 << ADD_LEFT_SHIFT, parameters.input0)
        scaled1 = _rescaled(centred1 << ADD_LEFT_SHIFT, parameters.input1)
        real = _rescaled(scaled0 + scaled1 if task.code == OperationCode.ADD else scaled0 - scaled1, parameters.output)
    results: Array = np.clip(real + output.zero_point, *task.bounds).astype(dtype_of(output.type))
    return results


def _rescaled(values: Array, multiplier: FixedPointMultiplier) -> Array:
    return multiply_by_quantized_multiplier(values, multiplier.mantissa, multiplier.exponent)


@computes(OperationCode.MAXIMUM, OperationCode.MINIMUM)
def extreme(op: OperationView) -> tuple[Array, ...]:
    """Return the greater or lesser of two broadcast inputs; 8-bit ones are requantised to the output first."""
    first, second = (requantized(op.array(name), op.input(name), op.outputs[0]) for name in ("input0", "input1"))
    return (broadcast(np.maximum if op.code == OperationCode.MAXIMUM else np.minimum, first, second),)


@computes(OperationCode.POW)
def power(op: OperationView) -> tuple[Array, ...]:
    """Return base ** exponent of two broadcast inputs."""
    base, exponent = (op.array(name).astype(np.float32, copy=False) for name in ("base", "exponent"))
    return (broadcast(np.power, base, exponent).astype(dtype_of(op.data_type), copy=False),)


@computes(OperationCode.PRELU)
def prelu(op: OperationView) -> tuple[Array, ...]:
    """Return x where it is >= 0, else alpha * x, of two broadcast inputs."""
    if op.data_type in QUANT8_TYPES:
        return (_quantized(op, "input", "alpha"),)
    real, slope = (op.array(name).astype(np.float32, copy=False) for name in ("input", "alpha"))
    function = _prelu if np.isfinite(slope).all() else _prelu_of_any_slope
    return (broadcast(function, real, slope).astype(dtype_of(op.data_type), copy=False),)


def _prelu(real: Array, slope: Array) -> Array:
    """Return PRELU by parts: numpy chooses one element at a time, in ten times the time."""
    result: Array = real.clip(-np.inf, 0) * slope
    result += real.clip(0, np.inf)
    return result


def _prelu_of_any_slope(real: Array, slope: Array) -> Array:
    return np.where(real >= 0, real, real * slope)

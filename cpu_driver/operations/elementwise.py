# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, PRELU."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.kept import kept
from cpu_driver.operations import computes
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of, element_count
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters, mul_multiplier, prelu_multipliers
from nn_runtime.quantization import (
    FixedPointMultiplier,
    activation_range_float,
    activation_range_quantized,
    multiply_by_quantized_multiplier,
    quantized_type,
    requantization_table,
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
        return (_quantized(op),)
    if op.data_type == OperandCode.TENSOR_INT32:
        return (_integers(op.code, op.array("input0"), op.array("input1")),)
    first, second = (op.array(name).astype(np.float32, copy=False) for name in ("input0", "input1"))
    result: Array = _FUNCTIONS[op.code](first, second)
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


def _integers(code: int, first: Array, second: Array) -> Array:
    if code != OperationCode.DIV:
        wrapped: Array = _FUNCTIONS[code](first, second)
        return wrapped
    # numpy, too, gives 0 for x / 0 and -2^31 for -2^31 / -1, with a warning.
    quotient: Array = np.floor_divide(first, second)
    return quotient


def _quantized(op: OperationView) -> Array:
    results: Array = kept(op, _pairs, ("input0", "input1"))(op.array("input0"), op.array("input1"))
    return results


def _pairs(op: OperationView) -> Callable[[Array, Array], Array]:
    """Return the function that makes the results of two broadcast arrays of codes, of the sizes of the inputs."""
    code, bounds = op.code, activation_range_quantized(op.fuse_code(), op.outputs[0])
    source0, source1, output = map(quantized_type, (op.input("input0"), op.input("input1"), op.outputs[0]))
    if max(element_count(op.dimensions(name)) for name in ("input0", "input1")) < _TABLE_SIZE:
        return lambda first, second: _combine(code, first, second, source0, source1, output, bounds)
    sums = _sums(code, source0, source1, output, bounds) if code != OperationCode.MUL else None
    if sums is not None:
        return sums
    table = _table(code, source0, source1, output, bounds)

    def looked_up(first: Array, second: Array) -> Array:
        pairs = np.multiply(first.view(np.uint8), np.uint16(256), dtype=np.uint16)
        results: Array = table.take(np.bitwise_or(pairs, second.view(np.uint8)))
        return results

    return looked_up


@functools.lru_cache(maxsize=128)
def _table(
    code: int, source0: OperandType, source1: OperandType, output: OperandType, bounds: tuple[int, int]
) -> Array:
    """Return the results of all pairs of codes, indexed by 256 * first + second, both as bytes (64 KiB)."""
    codes = np.arange(256, dtype=np.uint8).view(dtype_of(output.type))
    return _combine(code, codes[:, None], codes[None, :], source0, source1, output, bounds).reshape(-1)


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
def _sums(
    code: int, source0: OperandType, source1: OperandType, output: OperandType, bounds: tuple[int, int]
) -> _Sums | None:
    """Return float32 arithmetic that gives the specified results for all pairs of codes, if it is found."""
    table = _table(code, source0, source1, output, bounds).reshape(256, 256)
    every = np.arange(256, dtype=np.uint8).view(table.dtype)
    codes = Codes(bounds, table.dtype)
    real0, real1 = source0.scale / output.scale, source1.scale / output.scale
    if code == OperationCode.SUB:
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


def _combine(
    code: int,
    first: Array,
    second: Array,
    source0: OperandType,
    source1: OperandType,
    output: OperandType,
    bounds: tuple[int, int],
) -> Array:
    """Return the result of each pair in the arithmetic of TFLite's reference kernels."""
    centred0, centred1 = first.astype(np.int64) - source0.zero_point, second.astype(np.int64) - source1.zero_point
    scales = source0.scale, source1.scale, output.scale
    if code == OperationCode.MUL:
        real = _rescaled(centred0 * centred1, mul_multiplier(*scales))
    else:
        parameters = add_parameters(*scales)
        scaled0 = _rescaled(centred0 << ADD_LEFT_SHIFT, parameters.input0)
        scaled1 = _rescaled(centred1 << ADD_LEFT_SHIFT, parameters.input1)
        real = _rescaled(scaled0 + scaled1 if code == OperationCode.ADD else scaled0 - scaled1, parameters.output)
    results: Array = np.clip(real + output.zero_point, *bounds).astype(dtype_of(output.type))
    return results


def _rescaled(values: Array, multiplier: FixedPointMultiplier) -> Array:
    return multiply_by_quantized_multiplier(values, multiplier.mantissa, multiplier.exponent)


@computes(OperationCode.MAXIMUM, OperationCode.MINIMUM)
def extreme(op: OperationView) -> tuple[Array, ...]:
    """Return the greater or lesser of two broadcast inputs; 8-bit ones are requantised to the output first."""
    operands = (op.input("input0"), op.input("input1"))
    first, second = op.array("input0"), op.array("input1")
    if op.data_type in QUANT8_TYPES:
        tables = [requantization_table(operand, op.outputs[0]) for operand in operands]
        first, second = tables[0].take(first.view(np.uint8)), tables[1].take(second.view(np.uint8))
    return ((np.maximum if op.code == OperationCode.MAXIMUM else np.minimum)(first, second),)


@computes(OperationCode.POW)
def power(op: OperationView) -> tuple[Array, ...]:
    """Return base ** exponent of two broadcast inputs."""
    base, exponent = (op.array(name).astype(np.float32, copy=False) for name in ("base", "exponent"))
    return (np.power(base, exponent).astype(dtype_of(op.data_type), copy=False),)


@computes(OperationCode.PRELU)
def prelu(op: OperationView) -> tuple[Array, ...]:
    """Return x where it is >= 0, else alpha * x, of two broadcast inputs."""
    values, alpha = op.array("input"), op.array("alpha")
    if op.data_type not in QUANT8_TYPES:
        real, slope = values.astype(np.float32, copy=False), alpha.astype(np.float32, copy=False)
        return (np.where(real >= 0, real, real * slope).astype(values.dtype, copy=False),)
    source, slope_type, output = op.input("input"), op.input("alpha"), op.outputs[0]
    multipliers = prelu_multipliers(source.scale, slope_type.scale, output.scale)
    centred = values.astype(np.int64) - source.zero_point
    sloped = _rescaled(centred * (alpha.astype(np.int64) - slope_type.zero_point), multipliers.negative)
    results = np.where(centred >= 0, _rescaled(centred, multipliers.positive), sloped) + output.zero_point
    info = np.iinfo(values.dtype)
    return (results.clip(info.min, info.max).astype(values.dtype),)

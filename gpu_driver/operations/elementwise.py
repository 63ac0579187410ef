# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, PRELU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_driver import chain
from gpu_driver.byte_pairs import Bytes, by_floats, specified
from gpu_driver.chain import elementwise as programs
from gpu_driver.kernel import Kernel, Packed, float32, float_vector, int32, int_vector
from gpu_driver.launch import Launch, PersistentKind, PersistentStep
from gpu_driver.launchers.broadcast import broadcast, pairwise, refuse_pair
from gpu_driver.operations import launches, supports
from gpu_driver.operations.activation import by_table
from gpu_driver.splits.vectors import LANES, c_type, defines
from gpu_driver.splits.worksize import linear
from nn_runtime.codes import OperationCode
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES, dtype_of
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters, mul_multiplier, prelu_multipliers
from nn_runtime.quantization import (
    FixedPointMultiplier,
    activation_range_float,
    activation_range_quantized,
    multiply_by_quantized_multiplier,
    requantization_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_driver.bound import BoundOperand, BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.kernel import Argument
    from nn_runtime.operand import Array

_FUNCTIONS = {
    OperationCode.ADD: chain.Function.ADD,
    OperationCode.SUB: chain.Function.SUB,
    OperationCode.MUL: chain.Function.MUL,
    OperationCode.DIV: chain.Function.DIV,
}
_PRELU_NUMBERS = (
    *("zero0", "zero1", "zero_out"),
    *("multiplier0", "exponent0", "multiplier1", "exponent1"),
)
_MAX_RANK = 4
_UNUSED = FixedPointMultiplier(0, 0)

supports(OperationCode.MAXIMUM, OperationCode.MINIMUM, OperationCode.POW, OperationCode.PRELU)(refuse_pair)


@launches(OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV)
def elementwise(op: BoundOperation, device: DeviceProfile) -> Launch:
    """ADD, SUB, MUL, DIV. Every type, rank up to 4; kernels elementwise.cl:elementwise, elementwise_broadcast."""
    first, second, output = op.input("input0"), op.input("input1"), op.outputs[0]
    shape = broadcast(first.dimensions, second.dimensions, output.dimensions)
    reals = _reals(op) if device.is_cpu else None  # elsewhere integers take no longer than memory
    common = (first, second, output, int32(_FUNCTIONS[OperationCode(op.code)]), *_arithmetic(op, reals))
    moved = first.size_bytes + second.size_bytes + output.size_bytes
    types = defines(device, T=c_type(output))
    if not shape.fits_rows(device):
        return Launch(
            Kernel("elementwise.cl", "elementwise_broadcast", types),
            (*common, *_dimensions(shape.sizes, shape.strides0, shape.strides1), int32(output.count)),
            *linear(output.count, device),
            flops=output.count,
            bytes_moved=moved,
        )
    rows, arguments, sizes = shape.by_rows(device)
    is_dense = len(shape.sizes) == 1 and shape.strides0[0] == shape.strides1[0] == 1 and output.count >= LANES
    launch = Launch(
        Kernel("elementwise.cl", "elementwise", types),
        (*common, *_dimensions(*rows), *arguments),
        *sizes,
        flops=output.count,
        bytes_moved=moved,
        persistent=PersistentStep(PersistentKind.COMBINATION, output.count, len(common)) if is_dense else None,
    )
    return programs.joinable(launch, _chain_step(op, reals, device))


def _reals(op: BoundOperation) -> tuple[float, float, float] | None:
    """Return the numbers by which float32 arithmetic combines bytes; None for other types, or where there are none."""
    if op.data_type not in QUANT8_TYPES:
        return None
    first, second, output = (Bytes.of(one) for one in (op.input("input0"), op.input("input1"), op.outputs[0]))
    return by_floats(OperationCode(op.code), first, second, output)


def _chain_step(
    op: BoundOperation, reals: tuple[float, float, float] | None, device: DeviceProfile
) -> chain.Step | None:
    """Return what takes the launch's place in a chain, None where it does not fit in."""
    output = op.outputs[0]
    kernel = chain.step_kernel(output, device)
    if kernel is None:
        return None
    operands = op.input("input0"), op.input("input1")
    function = _FUNCTIONS[OperationCode(op.code)]
    if op.data_type in FLOAT_TYPES:
        return programs.step_of(kernel, output, operands, function, *activation_range_float(op.fuse_code()))
    low, high = activation_range_quantized(op.fuse_code(), output)
    first, second, result = (Bytes.of(one) for one in (*operands, output))
    exact = specified(OperationCode(op.code), (first, second, result), (low, high))
    if reals is not None:
        names = "zero0", "zero1", "zero_out", "real0", "real1", "offset"
        zeros = (one.zero_point for one in (*operands, output))
        numbers = {"by_floats": 1, **dict(zip(names, (*zeros, *reals), strict=True))}
        return programs.step_of(kernel, output, operands, function, low, high, numbers, exact=exact)
    low, high = low - output.zero_point, high - output.zero_point
    factors = dict(zip(("0", "1", "_out"), _factors(op), strict=True))
    numbers = {
        "left_shift": ADD_LEFT_SHIFT,
        **{f"zero{which}": one.zero_point for which, one in zip(factors, (*operands, output), strict=True)},
        **{f"multiplier{which}": factor.mantissa for which, factor in factors.items()},
        **{f"exponent{which}": factor.exponent for which, factor in factors.items()},
    }
    return programs.step_of(kernel, output, operands, function, low, high, numbers, exact=exact)


def _dimensions(*parts: tuple[int, ...]) -> tuple[Argument, ...]:
    return tuple(int_vector(*[1 if at == 0 else 0] * (_MAX_RANK - len(part)), *part) for at, part in enumerate(parts))


def _arithmetic(op: BoundOperation, reals: tuple[float, float, float] | None) -> tuple[Argument, ...]:
    """Return the arguments low, high, left_shift, zeros, factor0, factor1, factor_out, by_floats, reals."""
    by_reals = int32(reals is not None), float_vector(*(reals or (0, 0, 0)), 0)
    first, second, output = op.input("input0"), op.input("input1"), op.outputs[0]
    if op.data_type in FLOAT_TYPES:
        low, high = activation_range_float(op.fuse_code())
        return float32(low), float32(high), *_fixed_point((0, 0, 0), _UNUSED, _UNUSED, _UNUSED), *by_reals
    if op.data_type not in QUANT8_TYPES:
        return int32(0), int32(0), *_fixed_point((0, 0, 0), _UNUSED, _UNUSED, _UNUSED), *by_reals
    bounds = activation_range_quantized(op.fuse_code(), output)
    centred = (int32(bound - output.zero_point) for bound in bounds)
    zeros = first.zero_point, second.zero_point, output.zero_point
    return (*centred, *_fixed_point(zeros, *_factors(op)), *by_reals)


def _factors(op: BoundOperation) -> tuple[FixedPointMultiplier, FixedPointMultiplier, FixedPointMultiplier]:
    scales = op.input("input0").scale, op.input("input1").scale, op.outputs[0].scale
    if op.code == OperationCode.MUL:
        return _UNUSED, _UNUSED, mul_multiplier(*scales)
    parameters = add_parameters(*scales)
    return parameters.input0, parameters.input1, parameters.output


def _fixed_point(zero_points: tuple[int, int, int], *factors: FixedPointMultiplier) -> tuple[Argument, ...]:
    pairs = (int_vector(factor.mantissa, factor.exponent) for factor in factors)
    return int32(ADD_LEFT_SHIFT), int_vector(*zero_points, 0), *pairs


@launches(OperationCode.MAXIMUM, OperationCode.MINIMUM)
def extreme(op: BoundOperation, device: DeviceProfile) -> Launch:
    """MAXIMUM, MINIMUM. Every type, any rank; kernel broadcast.cl:extreme. QUANT8 inputs are requantised by tables."""
    first, second, output = op.input("input0"), op.input("input1"), op.outputs[0]
    if op.fusion.table is not None:
        return _by_pairs((first, second, output), op.fusion.table, device)
    tables = None
    if op.data_type in QUANT8_TYPES:
        tables = _requantizations(first, second, output)
    greatest = op.code == OperationCode.MAXIMUM
    operands = first, second, output
    launch = pairwise("extreme", operands, (int32(greatest),), device, tables)
    function = chain.Function.MAXIMUM if greatest else chain.Function.MINIMUM
    exact = np.maximum if greatest else np.minimum
    return launch if tables is not None else _joinable(launch, operands, function, device, exact=exact)


@launches(OperationCode.POW)
def power(op: BoundOperation, device: DeviceProfile) -> Launch:
    """POW. FLOAT32, FLOAT16, any rank; kernel broadcast.cl:power."""
    return pairwise("power", (op.input("base"), op.input("exponent"), op.outputs[0]), (), device)


@launches(OperationCode.PRELU)
def prelu(op: BoundOperation, device: DeviceProfile) -> Launch:
    """PRELU. FLOAT32, FLOAT16, QUANT8, any rank; kernel broadcast.cl:prelu, of bytes by one number a table."""
    source, alpha, output = operands = op.input("input"), op.input("alpha"), op.outputs[0]
    if op.data_type not in QUANT8_TYPES:
        return _joinable(pairwise("prelu", operands, (), device), operands, chain.Function.PRELU, device)
    factors = prelu_multipliers(source.scale, alpha.scale, output.scale)
    pairs = factors.positive.mantissa, factors.positive.exponent, factors.negative.mantissa, factors.negative.exponent
    zeros = source.zero_point, alpha.zero_point, output.zero_point
    info = np.iinfo(dtype_of(output.type))
    low, high = int(info.min) - output.zero_point, int(info.max) - output.zero_point
    arguments = int_vector(*pairs), int_vector(*zeros, 0), int32(low), int32(high)
    numbers = dict(zip(_PRELU_NUMBERS, (*zeros, *pairs), strict=True))

    def exact(a: Array, b: Array) -> Array:
        x = a - source.zero_point
        kept, scaled = (
            multiply_by_quantized_multiplier(values, factor.mantissa, factor.exponent)
            for values, factor in ((x, factors.positive), (x * (b - alpha.zero_point), factors.negative))
        )
        codes: Array = np.clip(np.where(x >= 0, kept, scaled), low, high) + output.zero_point
        return codes

    if alpha.constant is not None and alpha.count == 1:
        codes = np.arange(256, dtype=np.uint8).view(dtype_of(output.type))
        table = exact(codes.astype(np.int64), alpha.constant.reshape(()).astype(np.int64))
        return by_table(op, table.astype(codes.dtype), device)
    launch = pairwise("prelu", operands, arguments, device)
    return _joinable(launch, operands, chain.Function.PRELU, device, (low, high), numbers, exact)


def _by_pairs(operands: tuple[BoundOperand, BoundOperand, BoundOperand], table: Array, device: DeviceProfile) -> Launch:
    """Return the launch of what makes a byte of two, by a table [256, 256]."""

    def exact(a: Array, b: Array) -> Array:
        codes: Array = table[a & 0xFF, b & 0xFF].astype(np.int64)
        return codes

    launch = pairwise("pairs", operands, (Packed(table),), device)
    return _joinable(launch, operands, chain.Function.PAIRS, device, exact=exact, table=table)


def _joinable(
    launch: Launch,
    operands: tuple[BoundOperand, BoundOperand, BoundOperand],
    function: chain.Function,
    device: DeviceProfile,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    numbers: Mapping[str, int | float] | None = None,
    exact: Callable[[Array, Array], Array] | None = None,
    table: Array | None = None,
) -> Launch:
    """Return the launch of two inputs and an output with the step that may take its place in a chain, if any."""
    *inputs, output = operands
    kernel = chain.step_kernel(output, device)
    if kernel is None:
        return launch
    step = programs.step_of(kernel, output, inputs, function, *bounds, numbers, table, exact)
    return programs.joinable(launch, step)


def _requantizations(first: BoundOperand, second: BoundOperand, output: BoundOperand) -> tuple[Array, Array] | None:
    """Return the tables that bring both inputs to the output's quantisation, None where they have it."""
    tables = requantization_table(first, output), requantization_table(second, output)
    codes = np.arange(256, dtype=np.uint8)
    return None if all(np.array_equal(table.view(np.uint8), codes) for table in tables) else tables

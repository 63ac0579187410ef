# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, MUL, DIV."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_driver.launch import Kernel, Launch, float32, int32, int_vector
from gpu_driver.operations import launches
from gpu_driver.strided import dense_strides
from gpu_driver.vectors import LANES, c_type, defines, per_item, work_sizes
from gpu_driver.worksize import linear
from nn_runtime.codes import OperationCode
from nn_runtime.operand import FLOAT_TYPES, QUANT8_TYPES
from nn_runtime.operations.elementwise import ADD_LEFT_SHIFT, add_parameters, mul_multiplier
from nn_runtime.quantization import FixedPointMultiplier, activation_range_float, activation_range_quantized

if TYPE_CHECKING:
    from gpu_driver.bound import BoundOperation
    from gpu_driver.device_profile import DeviceProfile
    from gpu_driver.launch import Argument
    from nn_runtime.operand import Dimensions

_NUMBERS = {OperationCode.ADD: 0, OperationCode.SUB: 1, OperationCode.MUL: 2, OperationCode.DIV: 3}
_MAX_RANK = 4
_UNUSED = FixedPointMultiplier(0, 0)


@dataclass(frozen=True)
class Broadcast:
    """The output's dimensions with neighbours merged and size 1 left out, and both inputs' strides (0: broadcast)."""

    sizes: tuple[int, ...]
    strides0: tuple[int, ...]
    strides1: tuple[int, ...]

    @property
    def has_long_rows(self) -> bool:
        """Whether `elementwise` fits: the innermost dimension holds a vector; its strides are 0 or 1 anyway."""
        return bool(self.sizes) and self.sizes[-1] >= LANES


@launches(OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV)
def elementwise(op: BoundOperation, device: DeviceProfile) -> Launch:
    """ADD, SUB, MUL, DIV. Every type, rank up to 4; kernels elementwise.cl:elementwise, elementwise_broadcast."""
    first, second, output = op.input("input0"), op.input("input1"), op.outputs[0]
    shape = broadcast(first.dimensions, second.dimensions, output.dimensions)
    common = (first, second, output, int32(_NUMBERS[OperationCode(op.code)]), *_arithmetic(op))
    moved = first.size_bytes + second.size_bytes + output.size_bytes
    types = defines(device, T=c_type(output))
    if not shape.has_long_rows:
        global_size, local_size = linear(output.count, device)
        return Launch(
            Kernel("elementwise.cl", "elementwise_broadcast", types),
            (*common, *_dimensions(shape.sizes, shape.strides0, shape.strides1), int32(output.count)),
            global_size,
            local_size,
            output.count,
            moved,
        )
    inner, rows = shape.sizes[-1], math.prod(shape.sizes[:-1])
    vectors = -(-inner // LANES)
    item_vectors = per_item(vectors, device, LANES)
    item_rows = per_item(rows, device, inner)
    global_size, local_size = work_sizes(-(-vectors // item_vectors), device, -(-rows // item_rows))
    return Launch(
        Kernel("elementwise.cl", "elementwise", types),
        (
            *common,
            *_dimensions(shape.sizes[:-1], shape.strides0[:-1], shape.strides1[:-1]),
            *(int32(value) for value in (rows, inner, shape.strides0[-1], shape.strides1[-1], item_vectors, item_rows)),
        ),
        global_size,
        local_size,
        output.count,
        moved,
    )


def broadcast(first: Dimensions, second: Dimensions, output: Dimensions) -> Broadcast:
    """Return how both inputs are walked through in the order of the output."""
    sizes: list[int] = []
    strides: list[tuple[int, int]] = []
    aligned = (_broadcast_strides(dims, output) for dims in (first, second))
    for size, stride0, stride1 in zip(output, *aligned, strict=True):
        if size == 1:
            continue
        if sizes and strides[-1] == (stride0 * size, stride1 * size):
            sizes[-1] *= size
            strides[-1] = stride0, stride1
        else:
            sizes.append(size)
            strides.append((stride0, stride1))
    return Broadcast(tuple(sizes), tuple(pair[0] for pair in strides), tuple(pair[1] for pair in strides))


def _broadcast_strides(dims: Dimensions, output: Dimensions) -> list[int]:
    missing = len(output) - len(dims)
    pairs = zip(dims, dense_strides(dims), strict=True)
    return [0] * missing + [0 if size == 1 else stride for size, stride in pairs]


def _dimensions(*parts: tuple[int, ...]) -> tuple[Argument, ...]:
    return tuple(int_vector(*[1 if at == 0 else 0] * (_MAX_RANK - len(part)), *part) for at, part in enumerate(parts))


def _arithmetic(op: BoundOperation) -> tuple[Argument, ...]:
    """Return the arguments low, high, left_shift, zeros, factor0, factor1, factor_out."""
    first, second, output = op.input("input0"), op.input("input1"), op.outputs[0]
    if op.data_type in FLOAT_TYPES:
        low, high = activation_range_float(op.fuse_code())
        return float32(low), float32(high), *_fixed_point((0, 0, 0), _UNUSED, _UNUSED, _UNUSED)
    if op.data_type not in QUANT8_TYPES:
        return int32(0), int32(0), *_fixed_point((0, 0, 0), _UNUSED, _UNUSED, _UNUSED)
    bounds = activation_range_quantized(op.fuse_code(), output)
    centred = (int32(bound - output.zero_point) for bound in bounds)
    return (*centred, *_fixed_point((first.zero_point, second.zero_point, output.zero_point), *_factors(op)))


def _factors(op: BoundOperation) -> tuple[FixedPointMultiplier, FixedPointMultiplier, FixedPointMultiplier]:
    scales = op.input("input0").scale, op.input("input1").scale, op.outputs[0].scale
    if op.code == OperationCode.MUL:
        return _UNUSED, _UNUSED, mul_multiplier(*scales)
    parameters = add_parameters(*scales)
    return parameters.input0, parameters.input1, parameters.output


def _fixed_point(zero_points: tuple[int, int, int], *factors: FixedPointMultiplier) -> tuple[Argument, ...]:
    pairs = (int_vector(factor.mantissa, factor.exponent) for factor in factors)
    return int32(ADD_LEFT_SHIFT), int_vector(*zero_points, 0), *pairs

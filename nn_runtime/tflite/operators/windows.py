# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_REDUCE_WINDOW: all numbers of a window as one, along any axes; PyTorch's pooling that is not TFLite's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.computations import combination
from nn_runtime.tflite.operators.places import GREATEST, SUM
from nn_runtime.tflite.values import constant, int32, int32_vector, real_scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.operators.places import Combination
    from nn_runtime.tflite.values import Value


@converts(BuiltinOperator.STABLEHLO_REDUCE_WINDOW, inputs=2)
def _reduce_window(op: Operator) -> None:
    """(input, initial value): windows at steps along each axis, with gaps inside; the initial value is around all.

    An axis after the other, but for windows of images, whose sums and greatest numbers pooling has.
    """
    source, how = op.input(0, "input"), combination(op, "body_subgraph_index")
    if how is None or source.type != OperandCode.TENSOR_FLOAT32:
        op.fail(f"input (input 0) must be FLOAT32, to be combined, got {OperandCode(source.type).name}")
    initial = op.array(1, "initial value").reshape(-1)
    sizes, strides, dilations = (
        _of_axes(op, source, f"window_{name}", 1) for name in ("dimensions", "strides", "dilations")
    )
    if initial.size != 1 or max(_of_axes(op, source, "base_dilations", 1)) > 1:
        op.fail("one initial value (input 1) and base_dilations of 1 are supported alone")
    result = _padded(op, source, float(initial[0]))
    if _is_of_images(sizes, strides, dilations) and how in (SUM, GREATEST):
        result = _pooled(op, result, how, sizes, strides)
    else:
        for axis, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True)):
            result = _along(op, result, axis, how, (size, stride, dilation))
    op.result(result if initial[0] == how.nothing else how.of(op, result, constant(initial)))


def _of_axes(op: Operator, source: Value, option: str, least: int, of_each: int = 1) -> list[int]:
    """Return an option that has numbers for each axis."""
    numbers = op.integer_options(option)
    is_of_32_bits = max(numbers, default=0) <= np.iinfo(np.int32).max
    if len(numbers) != source.rank * of_each or min(numbers, default=0) < least or not is_of_32_bits:
        op.fail(f"{option} must be {of_each} for each of {source.rank} axes, at least {least}, got {numbers}")
    return numbers


def _padded(op: Operator, source: Value, initial: float) -> Value:
    around = _of_axes(op, source, "padding", 0, of_each=2)
    if not any(around):
        return source
    number = real_scalar(source, initial)
    paddings = int32_vector(around)
    return op.emit(OperationCode.PAD_V2, [source, op.reshape(paddings, (source.rank, 2)), number], source)


def _is_of_images(sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> bool:
    """Tell whether windows lie in height and width of [batches, height, width, depth]."""
    outer = [*sizes[::3], *strides[::3]]
    return len(sizes) == 4 and max(outer) == 1 and max(dilations) == 1 and max(sizes) > 1


def _pooled(op: Operator, source: Value, how: Combination, sizes: Sequence[int], strides: Sequence[int]) -> Value:
    window = [int32(PaddingCode.VALID), *(int32(number) for number in (*strides[2:0:-1], *sizes[2:0:-1]))]
    code = OperationCode.MAX_POOL_2D if how is GREATEST else OperationCode.AVERAGE_POOL_2D
    result = op.emit(code, [source, *window, int32(FuseCode.NONE)], source)
    if how is GREATEST:
        return result
    count = constant(np.array([sizes[1] * sizes[2]], np.float32))
    return op.emit(OperationCode.MUL, [result, count, int32(FuseCode.NONE)], source)


def _along(op: Operator, source: Value, axis: int, how: Combination, window: tuple[int, int, int]) -> Value:
    """Return what windows of a size, at steps, with gaps, make of one axis."""
    size, stride, dilation = window
    whole = (source.shape or ())[axis]
    count = (whole - (size - 1) * dilation - 1) // stride + 1
    if count < 1:
        op.fail(f"a window must fit into {whole} elements along axis {axis}, got {size} with gaps of {dilation}")
    if op.unrolled_steps(2, size) < size:
        op.fail(f"windows of {size} elements along axis {axis} are too many operations")
    result = _taken(op, source, axis, 0, stride, count)
    for tap in range(1, size):
        result = how.of(op, result, _taken(op, source, axis, tap * dilation, stride, count))
    return result


def _taken(op: Operator, source: Value, axis: int, first: int, stride: int, count: int) -> Value:
    """Return so many elements of an axis, each so far behind the one before."""
    shape = source.shape or ()
    if (first, stride, count) == (0, 1, shape[axis]):
        return source
    begins, ends, steps = [0] * len(shape), list(shape), [1] * len(shape)
    begins[axis], ends[axis], steps[axis] = first, first + (count - 1) * stride + 1, stride
    bounds = [int32_vector(numbers) for numbers in (begins, ends, steps)]
    return op.emit(OperationCode.STRIDED_SLICE, [source, *bounds, *[int32(0)] * 3], source)

# SPDX-License-Identifier: Apache-2.0
"""REDUCE_WINDOW and its StableHLO form: a window's elements as one, along any axes; PyTorch's pooling, not TFLite's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode, PaddingCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.operators.computations import combination
from nn_runtime.tflite.operators.gaps import with_gaps
from nn_runtime.tflite.operators.places import ALL, ANY, GREATEST, LEAST, PRODUCT, SUM, Combination
from nn_runtime.tflite.operators.whole_numbers import as_output, whole_numbers
from nn_runtime.tflite.values import constant, int32, int32_vector
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator
    from nn_runtime.tflite.values import Value

_FUNCTIONS = {1: SUM, 2: PRODUCT, 3: LEAST, 4: GREATEST, 5: ALL, 6: ANY}
_OF_WINDOWS = ("dimensions", "strides", "dilations")


@dataclass(frozen=True)
class _Windows:
    """Sizes of windows, steps from one to the next, and steps inside one, along each axis."""

    sizes: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]

    def are_of_images(self) -> bool:
        """Tell whether they lie in height and width of [batches, height, width, depth]."""
        outer = [*self.sizes[::3], *self.strides[::3]]
        return len(self.sizes) == 4 and max(outer) == 1 and max(self.dilations) == 1 and max(self.sizes) > 1


@converts(BuiltinOperator.STABLEHLO_REDUCE_WINDOW, inputs=2)
def _stablehlo_reduce_window(op: Operator) -> None:
    """(input, initial value): that value is around the input, and between its elements, as the options say."""
    source, how = op.input(0, "input"), combination(op, "body_subgraph_index")
    if how is None:
        op.fail("the window's elements must be combined, got a subgraph that gives the second of two")
    windows = _Windows(
        *(_of_axes(op, source, f"window_{name}", op.integer_options(f"window_{name}")) for name in _OF_WINDOWS)
    )
    gaps = [step - 1 for step in _of_axes(op, source, "base_dilations", op.integer_options("base_dilations"))]
    around = op.integer_options("padding")
    if len(around) != 2 * source.rank:
        op.fail(f"padding must be 2 numbers for each of {source.rank} axes, got {around}")
    initial = _initial(op, source)
    padded = with_gaps(op, source, initial, gaps, around[::2], around[1::2])
    _reduce(op, padded, initial, how, windows)


@converts(BuiltinOperator.REDUCE_WINDOW, inputs=5)
def _reduce_window(op: Operator) -> None:
    """(input, initial value, sizes of windows, steps between windows, steps inside)."""
    source, function = op.input(0, "input"), op.option("reduce_function")
    how = _FUNCTIONS.get(function)
    if how is None or (how in (ALL, ANY) and source.type != OperandCode.TENSOR_BOOL8):
        op.fail(f"reduce_function must be 1 to 4, or of BOOL 5 or 6, got {function}")
    windows = _Windows(
        *(
            _of_axes(op, source, f"window_{name} (input {at})", op.by_dimension(at, f"window_{name}"))
            for at, name in enumerate(_OF_WINDOWS, start=2)
        )
    )
    _reduce(op, source, _initial(op, source), how, windows)


def _of_axes(op: Operator, source: Value, name: str, numbers: Sequence[int]) -> Sequence[int]:
    """Return numbers for each axis, checked."""
    is_of_32_bits = max(numbers, default=0) <= np.iinfo(np.int32).max
    if len(numbers) != source.rank or min(numbers, default=1) < 1 or not is_of_32_bits:
        op.fail(f"{name} must be 1 for each of {source.rank} axes, at least 1, got {list(numbers)}")
    return numbers


def _initial(op: Operator, source: Value) -> Value:
    """Return the value with which each window begins, as one element of the input's type."""
    initial = op.input(1, "initial value")
    if math.prod(initial.shape or ()) != 1 or initial.type != source.type:
        given = f"{OperandCode(initial.type).name} {list(initial.shape or ())}"
        op.fail(f"initial value (input 1) must be one {OperandCode(source.type).name}, got {given}")
    return op.same_integers(op.reshape(initial, (1,)), source)


def _reduce(op: Operator, source: Value, initial: Value, how: Combination, windows: _Windows) -> None:
    """Make what windows give the output: an axis after the other, but for images, of which pooling has some."""
    if source.type == OperandCode.TENSOR_BOOL8:
        how = ANY if how in (SUM, GREATEST, ANY) else ALL
    is_of_bytes = source.type in QUANT8_TYPES and how in (SUM, PRODUCT)
    if is_of_bytes:
        source, initial = whole_numbers(op, source), whole_numbers(op, initial)
    is_pooled = source.type == OperandCode.TENSOR_FLOAT32 and how in (SUM, GREATEST)
    if windows.are_of_images() and (is_pooled or (source.type in QUANT8_TYPES and how is GREATEST)):
        result = _pooled(op, source, how, windows)
    else:
        result = source
        for axis, window in enumerate(zip(windows.sizes, windows.strides, windows.dilations, strict=True)):
            result = _along(op, result, axis, how, window)
    result = result if _is_nothing(initial, how) else how.of(op, result, initial)
    if is_of_bytes or source.type == OperandCode.TENSOR_INT32:
        op.result(as_output(op, result))
    else:
        op.result_of_same_quantization(result)


def _is_nothing(initial: Value, how: Combination) -> bool:
    """Tell whether an initial value is known to change nothing."""
    if initial.data is None:
        return False
    is_integer = initial.data.dtype.kind in "iu"
    return bool(initial.data.reshape(-1)[0] == (how.of_nothing(initial.type) if is_integer else how.nothing))


def _pooled(op: Operator, source: Value, how: Combination, windows: _Windows) -> Value:
    sizes, strides = windows.sizes, windows.strides
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
    if source.type == OperandCode.TENSOR_INT32:
        numbers = op.numbers(source)
        return op.rearranged(source, numbers.take(first + stride * np.arange(count), axis))
    begins, ends, steps = [0] * len(shape), list(shape), [1] * len(shape)
    begins[axis], ends[axis], steps[axis] = first, first + (count - 1) * stride + 1, stride
    bounds = [int32_vector(numbers) for numbers in (begins, ends, steps)]
    return op.moved(OperationCode.STRIDED_SLICE, source, *bounds, *[int32(0)] * 3)

# SPDX-License-Identifier: Apache-2.0
"""DILATE, STABLEHLO_PAD: numbers between elements, and around all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.tflite.builtin_operator import BuiltinOperator
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, int32, int32_vector, real_scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nn_runtime.tflite.operator import Operator

_MAX_PLACED = 1 << 20
_PADDED = frozenset(
    {
        *(OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16),
        *(OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED),
    }
)
"""What PAD_V2 takes."""


@converts(BuiltinOperator.DILATE, inputs=3)
def _dilate(op: Operator) -> None:
    """(input, dilations of each axis, padding value)."""
    source, steps = op.input(0, "input"), op.by_dimension(1, "dilations")
    if len(steps) != source.rank or min(steps, default=0) < 1:
        op.fail(f"dilations (input 1) must be {source.rank} numbers >= 1, got {steps}")
    gaps, none = [step - 1 for step in steps], [0] * source.rank
    op.result_of_same_quantization(with_gaps(op, source, op.input(2, "padding_value"), gaps, none, none))


@converts(BuiltinOperator.STABLEHLO_PAD, inputs=2)
def _pad(op: Operator) -> None:
    """(operand, padding value): what is < 0 of the options is cut off."""
    source = op.input(0, "operand")
    options = {name: op.integer_options(name) for name in ("interior_padding", "edge_padding_low", "edge_padding_high")}
    for name, amounts in options.items():
        if len(amounts) != source.rank:
            op.fail(f"{name} must be {source.rank} numbers, got {amounts}")
    gaps, before, after = options.values()
    if min(gaps, default=0) < 0:
        op.fail(f"interior_padding must be >= 0, got {gaps}")
    op.result_of_same_quantization(with_gaps(op, source, op.input(1, "padding_value"), gaps, before, after))


def with_gaps(
    op: Operator,
    source: Value,
    filling: Value,
    gaps: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
) -> Value:
    """Return a value with so many times a number between its elements along each axis, and before and after them."""
    if not any((*gaps, *before, *after)):
        return source
    if math.prod(filling.shape or ()) != 1 or filling.type != source.type:
        given = f"{OperandCode(filling.type).name} {list(filling.shape or ())}"
        op.fail(f"the padding value must be one {OperandCode(source.type).name}, got {given}")
    grown = [size + max(size - 1, 0) * gap for size, gap in zip(source.shape or (), gaps, strict=True)]
    shape = [size + sum(pair) for size, *pair in zip(grown, before, after, strict=True)]
    if 0 in (source.shape or ()) or min(shape, default=1) < 1:
        op.fail(f"an empty input or result is not supported, got {list(source.shape or ())} and {shape}")
    if source.type not in _PADDED or filling.data is None:
        return _placed(op, source, filling, gaps, before, shape)
    number = filling.data.reshape(-1)[0]
    with_edges = _spread(op, source, number, gaps)
    return _framed(op, with_edges, number, before, after, shape)


def _spread(op: Operator, source: Value, number: float, gaps: Sequence[int]) -> Value:
    """Return a value with gaps: after each element of an axis there is one, of which the last is cut off."""
    for axis, gap in enumerate(gaps):
        shape = source.shape or ()
        if not gap or shape[axis] == 1:
            continue
        outer, inner = math.prod(shape[: axis + 1]), math.prod(shape[axis + 1 :])
        padded = _pad_by(op, op.reshape(source, (outer, 1, inner)), number, [[0, 0], [0, gap], [0, 0]])
        size = shape[axis] * (gap + 1)
        whole = op.reshape(padded, (outer // shape[axis], size, inner))
        taken = int32_vector([0, 0, 0]), int32_vector([outer // shape[axis], size - gap, inner])
        part = op.emit(OperationCode.SLICE, [whole, *taken], source)
        source = op.reshape(part, (*shape[:axis], size - gap, *shape[axis + 1 :]))
    return source


def _framed(
    op: Operator, source: Value, number: float, before: Sequence[int], after: Sequence[int], shape: Sequence[int]
) -> Value:
    """Return a value with a border, which comes first, and without what is cut off."""
    added = [[max(low, 0), max(high, 0)] for low, high in zip(before, after, strict=True)]
    if any(map(any, added)):
        source = _pad_by(op, source, number, added)
    if list(source.shape or ()) == list(shape):
        return source
    begins = int32_vector([max(-low, 0) for low in before])
    return op.emit(OperationCode.SLICE, [source, begins, int32_vector(shape)], source)


def _pad_by(op: Operator, source: Value, number: float, amounts: Sequence[Sequence[int]]) -> Value:
    scalar = int32(int(number)) if source.is_quantized else real_scalar(source, float(number))
    flat = int32_vector([amount for pair in amounts for amount in pair])
    return op.emit(OperationCode.PAD_V2, [source, op.reshape(flat, (-1, 2)), scalar], source)


def _placed(
    op: Operator, source: Value, filling: Value, gaps: Sequence[int], before: Sequence[int], shape: Sequence[int]
) -> Value:
    """Return the same of types that NNAPI does not pad, and around numbers that are not known."""
    if math.prod(shape) > _MAX_PLACED:
        op.fail(f"more than {_MAX_PLACED} elements of {OperandCode(source.type).name} are not supported, got {shape}")
    numbers, is_inside = op.numbers(source), np.ones(shape, bool)
    places = []
    for axis, (gap, low, size) in enumerate(zip(gaps, before, shape, strict=True)):
        own, rest = np.divmod(np.arange(size) - low, gap + 1)
        is_own = (rest == 0) & (own >= 0) & (own < numbers.shape[axis])
        is_inside &= is_own.reshape(-1, *(1,) * (len(shape) - axis - 1))
        places.append(np.where(is_own, own, 0))
    plain = op.as_integers(source)
    spread = op.rearranged(plain, numbers[np.ix_(*places)])
    around = op.broadcast(
        op.same_integers(op.reshape(op.as_integers(filling), (1,) * source.rank), plain), tuple(shape)
    )
    inside = Value(OperandCode.TENSOR_BOOL8, is_inside.shape, data=is_inside)
    result = op.emit(OperationCode.SELECT, [inside, spread, op.broadcast(around, tuple(shape))], plain)
    return op.booleans_of(result) if source.type == OperandCode.TENSOR_BOOL8 else result

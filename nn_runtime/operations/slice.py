# SPDX-License-Identifier: Apache-2.0
"""SLICE, STRIDED_SLICE and REVERSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import FLOAT_AND_QUANT8, HAL_1_2_TYPES, check_same_quantization
from nn_runtime.operations.signature import (
    ANY_RANK,
    INT32,
    INT32_TENSOR,
    UP_TO_4,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions
    from nn_runtime.operations.signature import Rank


@dataclass(frozen=True)
class SliceParameters:
    """Element i of output axis a is element begins[a] + i * strides[a] of the input, for i < sizes[a].

    All have the input's rank; `dropped` axes have size 1 and are left out of `output_dimensions`.
    """

    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dropped: frozenset[int] = frozenset()

    @property
    def output_dimensions(self) -> Dimensions:
        """Dimensions of the output; [1] where every axis is dropped."""
        return tuple(size for axis, size in enumerate(self.sizes) if axis not in self.dropped) or (1,)


def slice_parameters(op: OperationView) -> SliceParameters:
    """Return what an operation with known sizes and values takes from each axis of its input; raises BadData."""
    if op.code == OperationCode.REVERSE:
        return _reverse(op)
    return _strided_slice(op) if op.code == OperationCode.STRIDED_SLICE else _slice(op)


def _slice(op: OperationView) -> SliceParameters:
    dims = op.dimensions("input")
    begins, sizes = _per_axis(op, "begin", len(dims)), _per_axis(op, "size", len(dims))
    for axis, (begin, size, limit) in enumerate(zip(begins, sizes, dims, strict=True)):
        if not 0 <= begin <= limit:
            op.fail("begin", f"must be in 0..{limit} for axis {axis}", begin)
        if size < -1 or begin + size > limit:
            op.fail("size", f"must be -1 or in 0..{limit - begin} for axis {axis}", size)
    taken = (limit - begin if size == -1 else size for begin, size, limit in zip(begins, sizes, dims, strict=True))
    return SliceParameters(begins, tuple(taken), (1,) * len(dims))


def _strided_slice(op: OperationView) -> SliceParameters:
    dims = op.dimensions("input")
    rank = len(dims)
    begins, ends, strides = (_per_axis(op, name, rank) for name in ("begin", "end", "strides"))
    begin_mask, end_mask, shrink_mask = (op.int_value(f"{name}_mask") for name in ("begin", "end", "shrink_axis"))
    firsts, sizes = [], []
    for axis, (size, stride) in enumerate(zip(dims, strides, strict=True)):
        if stride == 0:
            op.fail("strides", f"must not be 0 for axis {axis}", stride)
        first, last = (0, size) if stride > 0 else (size - 1, -1)
        begin = first if begin_mask >> axis & 1 else _clamped_index(begins[axis], size, stride)
        end = last if end_mask >> axis & 1 else _clamped_index(ends[axis], size, stride)
        firsts.append(begin)
        sizes.append(max(0, -((begin - end) // stride)))
    dropped = frozenset(axis for axis in range(rank) if shrink_mask >> axis & 1)
    for axis in dropped:
        if strides[axis] < 0 or sizes[axis] != 1:
            op.fail("shrink_axis_mask", f"must drop axes of one element, axis {axis} has", sizes[axis])
    return SliceParameters(tuple(firsts), tuple(sizes), strides, dropped)


def _reverse(op: OperationView) -> SliceParameters:
    dims, axes = op.dimensions("input"), op.int_values("axis")
    if len(axes) != 1 or not 0 <= axes[0] < len(dims):
        op.fail("axis", f"must be one number in [0, {len(dims)})", axes)
    begins, strides = [0] * len(dims), [1] * len(dims)
    begins[axes[0]], strides[axes[0]] = dims[axes[0]] - 1, -1
    return SliceParameters(tuple(begins), dims, tuple(strides))


def _clamped_index(index: int, size: int, stride: int) -> int:
    """Return an index counted from the front, cut to the places from which a slice may start or where it may end."""
    from_front = index + size if index < 0 else index
    low, high = (0, size) if stride > 0 else (-1, size - 1)
    return min(max(from_front, low), high)


def _per_axis(op: OperationView, name: str, rank: int) -> tuple[int, ...]:
    values = op.int_values(name)
    if len(values) != rank:
        op.fail(name, f"must have {rank} elements", values)
    return tuple(values)


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_0


def _check_reverse(op: OperationView) -> FeatureLevel:
    axis, before, after = op.input("axis").dimensions, op.input("input").dimensions, op.outputs[0].dimensions
    if axis is not None and axis[0] not in (0, 1):
        op.fail("axis", "must have shape [1]", list(axis))
    if before and after and len(before) != len(after):
        op.fail("input", f"must have the output's rank {len(after)}", list(before))
    return _check(op)


UP_TO_8: Rank = (1, 8)

_HAL_1_1_TYPES = {
    **FLOAT_AND_QUANT8,
    OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_1,
    OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_1,
}

define(
    Definition(
        OperationCode.STRIDED_SLICE,
        (
            Variant(
                (
                    Input("input", rank=UP_TO_4),
                    Input("begin", INT32_TENSOR, (1, 1), parameter=True),
                    Input("end", INT32_TENSOR, (1, 1), parameter=True),
                    Input("strides", INT32_TENSOR, (1, 1), parameter=True),
                    Input("begin_mask", INT32),
                    Input("end_mask", INT32),
                    Input("shrink_axis_mask", INT32),
                )
            ),
        ),
        (Output("output", rank=UP_TO_4),),
        _HAL_1_1_TYPES,
        lambda op: (slice_parameters(op).output_dimensions,),
        _check,
    )
)
define(
    Definition(
        OperationCode.SLICE,
        (
            Variant(
                (
                    Input("input", rank=ANY_RANK),
                    Input("begin", INT32_TENSOR, (1, 1), parameter=True),
                    Input("size", INT32_TENSOR, (1, 1), parameter=True),
                )
            ),
        ),
        (Output("output", rank=ANY_RANK),),
        HAL_1_2_TYPES,
        lambda op: (slice_parameters(op).output_dimensions,),
        _check,
        zero_sized_ok=True,
    )
)
define(
    Definition(
        OperationCode.REVERSE,
        (Variant((Input("input", rank=UP_TO_8), Input("axis", INT32_TENSOR, (1, 1), parameter=True))),),
        (Output("output", rank=UP_TO_8),),
        dict.fromkeys(HAL_1_2_TYPES, FeatureLevel.LEVEL_7),
        lambda op: (slice_parameters(op).output_dimensions,),
        _check_reverse,
    )
)

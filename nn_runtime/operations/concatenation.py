# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION and SPLIT along one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import dtype_of
from nn_runtime.operations.rules import FLOAT_AND_QUANT8
from nn_runtime.operations.signature import (
    ANY_RANK,
    INT32,
    UP_TO_4,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
)
from nn_runtime.quantization import round_half_away

if TYPE_CHECKING:
    from nn_runtime.operand import Array, Dimensions, OperandView


def concatenation_axis(op: OperationView) -> int:
    """Return the axis of a CONCATENATION, which must not be negative; raises BadData."""
    axis, rank = op.int_value("axis"), len(op.dimensions("input"))
    if not 0 <= axis < rank:
        op.fail("axis", f"must be in [0, {rank})", axis)
    return axis


def concatenation_tables(op: OperationView) -> list[Array | None]:
    """Return for each input the table that requantises its 256 bit patterns to the output, None where none is needed.

    A value's index is its byte, signed or not; entries have the output's dtype.
    """
    output = op.outputs[0]
    operands = op.all_inputs("input")
    return [None if _same_quantization(operand, output) else _table(operand, output) for operand in operands]


def split_axis(op: OperationView) -> int:
    """Return the axis of a SPLIT; raises BadData where it does not divide into the outputs."""
    dims = op.dimensions("input")
    axis, count = op.axis("axis", len(dims)), op.int_value("num_splits")
    if count != len(op.outputs):
        op.fail("num_splits", f"must be the number of outputs, {len(op.outputs)}", count)
    if dims[axis] % count:
        op.fail("num_splits", f"must divide the axis of size {dims[axis]}", count)
    return axis


def _same_quantization(first: OperandView, second: OperandView) -> bool:
    return (first.scale, first.zero_point) == (second.scale, second.zero_point)


def _table(source: OperandView, output: OperandView) -> Array:
    """Requantise every 8-bit value in float32, in unsigned codes, as TFLite's ConcatenationWithScaling."""
    offset = 128 if output.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 0
    codes = np.arange(256, dtype=np.float32)
    scale = np.float32(source.scale) * (np.float32(1) / np.float32(output.scale))
    bias = np.float32(-(source.zero_point + offset)) * scale
    unsigned = round_half_away(codes * scale + bias) + np.float32(output.zero_point + offset)
    table: Array = np.clip(unsigned, 0, 255).astype(np.uint8)
    if offset:  # a signed value's byte is its unsigned code with the top bit flipped
        table = np.roll(table, 128) ^ np.uint8(128)
    return table.view(dtype_of(output.type))


def _check_concatenation(op: OperationView) -> FeatureLevel:
    if op.data_type != OperandCode.TENSOR_QUANT8_ASYMM:
        return FeatureLevel.HAL_1_0
    same = all(_same_quantization(operand, op.outputs[0]) for operand in op.all_inputs("input"))
    return FeatureLevel.HAL_1_0 if same else FeatureLevel.HAL_1_2


def _prepare_concatenation(op: OperationView) -> tuple[Dimensions, ...]:
    axis, dims = concatenation_axis(op), list(op.dimensions("input"))
    total = 0
    for operand in op.all_inputs("input"):
        other = operand.dimensions or ()
        if len(other) != len(dims) or (*other[:axis], *other[axis + 1 :]) != (*dims[:axis], *dims[axis + 1 :]):
            op.fail("input", f"must have dimensions {dims} except along axis {axis}", list(other))
        total += other[axis]
    dims[axis] = total
    return (tuple(dims),)


def _check_split(op: OperationView) -> FeatureLevel:
    source = op.input("input")
    for at, output in enumerate(op.outputs):
        if not _same_quantization(source, output):
            op.fail(f"output {at}", f"must have scale {source.scale} and zero point {source.zero_point}", output.scale)
    return FeatureLevel.HAL_1_2


def _prepare_split(op: OperationView) -> tuple[Dimensions, ...]:
    axis, dims = split_axis(op), list(op.dimensions("input"))
    dims[axis] //= len(op.outputs)
    return (tuple(dims),) * len(op.outputs)


define(
    Definition(
        OperationCode.CONCATENATION,
        (Variant((Input("input", rank=UP_TO_4), Input("axis", INT32)), repeated="input"),),
        (Output("output", rank=UP_TO_4),),
        FLOAT_AND_QUANT8,
        _prepare_concatenation,
        _check_concatenation,
        zero_sized_ok=True,
    )
)
define(
    Definition(
        OperationCode.SPLIT,
        (Variant((Input("input", rank=ANY_RANK), Input("axis", INT32), Input("num_splits", INT32))),),
        (Output("output", rank=ANY_RANK),),
        {
            OperandCode.TENSOR_FLOAT16: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_INT32: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_QUANT8_ASYMM: FeatureLevel.HAL_1_2,
            OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: FeatureLevel.HAL_1_3,
        },
        _prepare_split,
        _check_split,
        repeated_output=True,
    )
)

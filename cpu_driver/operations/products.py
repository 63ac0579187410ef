# SPDX-License-Identifier: Apache-2.0
"""Exact 8-bit products through floating-point BLAS, and small steps that convolution and its kin share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.channel_rows import ChannelRows
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.quantization import activation_range_float, convolution_multipliers
from nn_runtime.requantization import Requantization

if TYPE_CHECKING:
    from collections.abc import Callable

    from nn_runtime.codes import FuseCode
    from nn_runtime.operand import Array, OperandView
    from nn_runtime.operations import OperationView

_EXACT_FLOAT32 = 2**24


def to_nhwc(image: Array, nchw: bool) -> Array:
    """Return an image as [batches, height, width, depth]."""
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1)) if nchw else image


def from_nhwc(image: Array, nchw: bool) -> Array:
    """Return an image [batches, height, width, depth] in the operation's layout."""
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2)) if nchw else image


def clamp_activation(values: Array, activation: FuseCode) -> None:
    """Apply a fused activation to real values in place."""
    low, high = activation_range_float(activation)
    if math.isfinite(low):
        values.clip(low, high, out=values)  # np.maximum with one number takes three times as long


def centred(values: Array, operand: OperandView, dtype: type[np.float32 | np.float64] = np.float32) -> Array:
    """Return 8-bit values minus their zero point as floating-point integers."""
    difference: Array = np.subtract(values, dtype(operand.zero_point), dtype=dtype)
    return difference


def centred_bound(operand: OperandView) -> int:
    """Return the greatest magnitude of a value of an 8-bit operand minus its zero point."""
    info = np.iinfo(dtype_of(operand.type))
    return max(int(info.max) - operand.zero_point, operand.zero_point - int(info.min))


def code_bound(operand: OperandView) -> int:
    """Return the greatest magnitude of a value of an 8-bit operand as it is stored."""
    info = np.iinfo(dtype_of(operand.type))
    return max(int(info.max), -int(info.min))


def float_type(bound: int) -> type[np.float32 | np.float64]:
    """Return the type in which integer sums up to `bound` in magnitude are exact."""
    return np.float32 if bound < _EXACT_FLOAT32 else np.float64


def float_operands(op: OperationView, terms: int) -> tuple[Array, Array]:
    """Return input and filter of a convolution as real numbers whose products can be summed.

    8-bit ones become integers less their zero point, in a type in which sums of `terms` products are exact.
    """
    image, filters = op.array("input"), op.array("filter")
    if op.data_type not in QUANT8_TYPES:
        return image.astype(np.float32, copy=False), filters.astype(np.float32, copy=False)
    source, weights = op.input("input"), op.input("filter")
    dtype = float_type(terms * centred_bound(source) * centred_bound(weights))
    return centred(image, source, dtype), centred(filters, weights, dtype)


def exact_depth(left_bound: int, right: Array, right_bound: int) -> int:
    """Return how many terms of left @ right.T may be summed in float32 with every partial sum exact.

    `right` [columns, depth] holds integers up to `right_bound` in magnitude, the left factor integers up to
    `left_bound`; the answer is the whole depth wherever the actual values of `right` allow it.
    """
    depth = int(right.shape[1])
    if left_bound * right_bound * depth < _EXACT_FLOAT32:
        return depth
    greatest_sum = float(np.abs(right).sum(axis=1, dtype=np.float64).max())
    if left_bound * greatest_sum < _EXACT_FLOAT32:
        return depth
    return (_EXACT_FLOAT32 - 1) // (left_bound * right_bound)


def product(left: Array, right: Array, depth_limit: int, out: Array | None = None) -> Array:
    """Return left [rows, depth] @ right [columns, depth] transposed, summing at most `depth_limit` terms in float32.

    Longer sums continue in float64, so that integers stay exact; others go to `out` if it is given.
    """
    depth = right.shape[1]
    if depth <= depth_limit:
        result: Array = np.matmul(left, right.T, out=out)
        return result
    sums = np.zeros((left.shape[0], right.shape[0]))
    for start in range(0, depth, depth_limit):
        part = slice(start, start + depth_limit)
        sums += left[:, part] @ right[:, part].T
    return sums


def convolution_end(
    op: OperationView, activation: FuseCode, filters: Array | None = None
) -> Callable[[Array, Array], object]:
    """Return the function that writes the results of sums [..., depth], with bias and activation, in the output's type.

    filters [terms, depth]: the centred filters, where the 8-bit sums are of an input that is not centred.
    Real sums are changed in place.
    """
    output, bias = op.outputs[0], op.array("bias")
    if output.type in QUANT8_TYPES:
        reach = None
        if filters is not None:
            source = op.input("input")
            bias = bias - source.zero_point * filters.sum(axis=0, dtype=np.float64).astype(np.int64)
            reach = code_bound(source) * np.abs(filters).sum(axis=0, dtype=np.float64)
        multipliers = convolution_multipliers(op.input("input"), op.input("filter"), output)
        return Requantization(bias, multipliers, output, activation, reach=reach)
    rows = ChannelRows(bias.astype(np.float32, copy=False))

    def end(sums: Array, results: Array) -> None:
        for piece, out, (row,) in rows.pieces(sums, results):
            piece += row
            clamp_activation(piece, activation)
            if results is not sums:
                out[...] = piece

    return end


def finish_convolution(op: OperationView, sums: Array, activation: FuseCode, nchw: bool) -> Array:
    """Return sums [batches, height, width, depth] with bias and activation in the output's type and layout."""
    results = np.empty(sums.shape, dtype_of(op.outputs[0].type))
    convolution_end(op, activation)(sums, results)
    return from_nhwc(results, nchw)

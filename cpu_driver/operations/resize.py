# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.resize import LinearPositions, Resize, resize_geometry

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

_SIGN_BIT = np.uint8(0x80)
_BLOCK_ELEMENTS = 1 << 16
"""Greatest number of results computed together, so that the temporaries stay in the cache."""


@computes(OperationCode.RESIZE_NEAREST_NEIGHBOR)
def resize_nearest_neighbor(op: OperationView) -> tuple[Array, ...]:
    """Return the input's pixels at the rounded source positions."""
    geometry = resize_geometry(op)
    height_axis, width_axis = (2, 3) if geometry.nchw else (1, 2)
    rows = op.array("input").take(geometry.nearest_rows(), axis=height_axis)
    return (rows.take(geometry.nearest_columns(), axis=width_axis),)


@computes(OperationCode.RESIZE_BILINEAR)
def resize_bilinear(op: OperationView) -> tuple[Array, ...]:
    """Return the weighted mean of four pixels in float32; signed 8-bit values as unsigned ones."""
    values, geometry = op.array("input"), resize_geometry(op)
    if op.data_type not in QUANT8_TYPES:
        return (_bilinear(values.astype(np.float32, copy=False), geometry, values.dtype),)
    signed = values.dtype == np.int8
    codes = values.view(np.uint8) ^ _SIGN_BIT if signed else values
    resized = _bilinear(codes.astype(np.float32), geometry, codes.dtype)
    return ((resized ^ _SIGN_BIT).view(np.int8) if signed else resized,)


def _bilinear(image: Array, geometry: Resize, dtype: np.dtype[np.generic]) -> Array:
    """Return an image resized, in a floating-point type or rounded to bytes, a few rows at a time.

    [planes, output rows, output columns], where NHWC has its depth in the columns.
    """
    rows, columns = geometry.linear_rows(), geometry.linear_columns()
    height_axis, width_axis = (2, 3) if geometry.nchw else (1, 2)
    planes, lines = math.prod(image.shape[:height_axis]), image.shape[height_axis]
    left, right = (
        image.take(positions, axis=width_axis).reshape(planes, lines, -1)
        for positions in (columns.lower, columns.upper)
    )
    width = left.shape[2]
    right_weight = np.repeat(columns.weight, width // len(columns.weight))
    results = np.empty((planes, len(rows.weight), width), dtype)
    step = max(1, _BLOCK_ELEMENTS // (planes * width))
    for start in range(0, results.shape[1], step):
        block = slice(start, start + step)
        part = replace(rows, lower=rows.lower[block], upper=rows.upper[block], weight=rows.weight[block])
        means = _row_means(left, right, part, right_weight)
        if dtype == np.uint8:
            means += np.float32(0.5)
        np.copyto(results[:, block], means, casting="unsafe")
    return results


def _row_means(left: Array, right: Array, rows: LinearPositions, right_weight: Array) -> Array:
    """Sum the four corners in the order of TFLite's reference: (value * row weight) * column weight, column by column.

    8-bit results depend on that order, so that kernels elsewhere keep it too (and do not contract to fused operations).
    """
    upper_weight = rows.weight[:, np.newaxis]
    lower_weight, left_weight = 1 - upper_weight, 1 - right_weight
    means: Array = left.take(rows.lower, axis=1)
    means *= lower_weight
    means *= left_weight
    for corner, positions, row_weight, column_weight in (
        (left, rows.upper, upper_weight, left_weight),
        (right, rows.lower, lower_weight, right_weight),
        (right, rows.upper, upper_weight, right_weight),
    ):
        term = corner.take(positions, axis=1)
        term *= row_weight
        term *= column_weight
        means += term
    return means

# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.resize import Resize, resize_geometry

if TYPE_CHECKING:
    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

_SIGN_BIT = np.uint8(0x80)


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
    values = op.array("input")
    if op.data_type not in QUANT8_TYPES:
        return (_bilinear(values.astype(np.float32, copy=False), resize_geometry(op)).astype(values.dtype, copy=False),)
    signed = values.dtype == np.int8
    codes = values.view(np.uint8) ^ _SIGN_BIT if signed else values
    result = _bilinear(codes.astype(np.float32), resize_geometry(op))
    result += np.float32(0.5)
    resized = result.astype(np.uint8)
    return ((resized ^ _SIGN_BIT).view(np.int8) if signed else resized,)


def _bilinear(image: Array, geometry: Resize) -> Array:
    """Sum the four corners in the order of TFLite's reference: (value * row weight) * column weight, column by column.

    8-bit results depend on that order, so that kernels elsewhere keep it too (and do not contract to fused operations).
    """
    height_axis, width_axis = (2, 3) if geometry.nchw else (1, 2)
    rows, columns = geometry.linear_rows(), geometry.linear_columns()
    row_weight = rows.weight.reshape((-1,) + (1,) * (3 - height_axis))
    column_weight = columns.weight.reshape((-1,) + (1,) * (3 - width_axis))
    top = image.take(rows.lower, axis=height_axis) * (1 - row_weight)
    bottom = image.take(rows.upper, axis=height_axis) * row_weight
    result: Array = top.take(columns.lower, axis=width_axis) * (1 - column_weight)
    for corner, positions, weight in (
        (bottom, columns.lower, 1 - column_weight),
        (top, columns.upper, column_weight),
        (bottom, columns.upper, column_weight),
    ):
        term = corner.take(positions, axis=width_axis)
        term *= weight
        result += term
    return result

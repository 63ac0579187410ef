# SPDX-License-Identifier: Apache-2.0
"""HEATMAP_MAX_KEYPOINT: the first maximum (NaN is none), refined by one Newton step on its 3 x 3 neighbourhood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.products import to_nhwc
from nn_runtime.codes import OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.heatmap import MAXIMUM_STEP, heatmap_sizes, singular_tolerance
from nn_runtime.quantization import dequantize, quantize

if TYPE_CHECKING:
    from nn_runtime.operand import Array, OperandView
    from nn_runtime.operations import OperationView


@computes(OperationCode.HEATMAP_MAX_KEYPOINT)
def heatmap_max_keypoint(op: OperationView) -> tuple[Array, ...]:
    """Return score and position of each keypoint of each box; quantised data is computed in float32."""
    _boxes, size, _keypoints = heatmap_sizes(op)
    boxes = _real(op, "boxes")
    if np.any(boxes[:, :2] > boxes[:, 2:]):
        op.fail("boxes", "must have x1 <= x2 and y1 <= y2", boxes.tolist())
    heatmaps = to_nhwc(_real(op, "heatmaps"), op.bool_value("layout")).reshape(len(boxes), size * size, -1)
    indices = np.where(np.isnan(heatmaps), -np.inf, heatmaps).argmax(axis=1)
    rows, columns = np.divmod(indices, size)
    grid = _neighbourhoods(heatmaps, rows, columns, size)
    delta_x, delta_y, scores = _newton_step(grid, singular_tolerance(op.data_type))
    origins, extents = boxes[:, np.newaxis, :2], (boxes[:, 2:] - boxes[:, :2])[:, np.newaxis]
    positions = np.stack([columns.astype(np.float32) + delta_x, rows.astype(np.float32) + delta_y], axis=-1)
    keypoints = (positions + np.float32(0.5)) / np.float32(size) * extents + origins
    return _stored(scores, op.outputs[0]), _stored(keypoints, op.outputs[1])


def _real(op: OperationView, name: str) -> Array:
    values = op.array(name)
    quantized = op.data_type in QUANT8_TYPES
    return dequantize(values, op.input(name)) if quantized else values.astype(np.float32, copy=False)


def _stored(real: Array, output: OperandView) -> Array:
    if output.type in (*QUANT8_TYPES, OperandCode.TENSOR_QUANT16_ASYMM):
        return quantize(real, output)
    return real.astype(dtype_of(output.type), copy=False)


def _neighbourhoods(heatmaps: Array, rows: Array, columns: Array, size: int) -> list[list[Array]]:
    """Return the 3 x 3 neighbours, each [boxes, keypoints], of a pixel; at an edge the inner one stands for both."""

    def mirrored(places: Array) -> Array:
        return np.where(places < 0, 1, np.where(places >= size, size - 2, places))

    def at(row_step: int, column_step: int) -> Array:
        places = mirrored(rows + row_step) * size + mirrored(columns + column_step)
        picked: Array = np.take_along_axis(heatmaps, places[:, np.newaxis], axis=1)[:, 0]
        return picked

    return [[at(row_step, column_step) for column_step in (-1, 0, 1)] for row_step in (-1, 0, 1)]


def _newton_step(grid: list[list[Array]], tolerance: float) -> tuple[Array, Array, Array]:
    """Return the step to the top of the quadratic through the neighbourhood, in x and y, and the value there.

    Where the Hessian is close to singular the step is 0; a long one is cut to MAXIMUM_STEP.
    """
    two, four, centre = np.float32(2), np.float32(4), grid[1][1]
    slope_x, slope_y = (grid[1][0] - grid[1][2]) / two, (grid[0][1] - grid[2][1]) / two
    hessian_xx = grid[1][0] - two * centre + grid[1][2]
    hessian_yy = grid[0][1] - two * centre + grid[2][1]
    hessian_xy = (grid[2][2] - grid[2][0] - grid[0][2] + grid[0][0]) / four
    diagonal = hessian_xx * hessian_yy
    determinant = diagonal - hessian_xy * hessian_xy
    # A determinant that is NaN is not close to 0, and comes out.
    regular = ~(np.abs(determinant) < np.float32(tolerance) + np.float32(tolerance) * diagonal)
    divisor = np.where(regular, determinant, np.float32(1))
    delta_x = np.where(regular, (hessian_yy * slope_x - hessian_xy * slope_y) / divisor, np.float32(0))
    delta_y = np.where(regular, (hessian_xx * slope_y - hessian_xy * slope_x) / divisor, np.float32(0))
    longest = np.maximum(np.abs(delta_x), np.abs(delta_y))
    limit = np.float32(MAXIMUM_STEP)
    factor = np.where(longest > limit, limit / np.where(longest > limit, longest, limit), np.float32(1))
    delta_x, delta_y = delta_x * factor, delta_y * factor
    curvature = (hessian_xx * delta_x + hessian_xy * delta_y) * delta_x
    curvature += (hessian_xy * delta_x + hessian_yy * delta_y) * delta_y
    return delta_x, delta_y, centre - slope_x * delta_x - slope_y * delta_y + curvature / two

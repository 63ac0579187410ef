# SPDX-License-Identifier: Apache-2.0
"""ROI_ALIGN, ROI_POOLING."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpu_driver.operations import computes
from cpu_driver.operations.boxes import real_boxes
from cpu_driver.operations.products import from_nhwc, to_nhwc
from nn_runtime.codes import OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.operations.roi import RegionPooling, region_pooling
from nn_runtime.quantization import fixed_point_multiplier, multiply_by_quantized_multiplier, round_half_away
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.operand import Array
    from nn_runtime.operations import OperationView

_WEIGHT_SCALE = np.float32(1) / np.float32(255)
"""Scale of the quantised interpolation weights."""


@computes(OperationCode.ROI_ALIGN)
def roi_align(op: OperationView) -> tuple[Array, ...]:
    """Return the mean of bilinear samples of each output pixel's part of a region."""
    sizes = region_pooling(op)
    image = to_nhwc(op.array("input"), sizes.nchw)
    quantized = op.data_type in QUANT8_TYPES
    work = np.int32 if quantized else np.float32
    centred = np.subtract(image, op.input("input").zero_point, dtype=work)
    shape = (sizes.rois, sizes.output_height, sizes.output_width, sizes.depth)
    result = np.empty(shape, dtype_of(op.outputs[0].type))
    for at, (batch, region) in enumerate(_regions(op, sizes)):
        rows = _samples(region[1], region[3], sizes.output_height, sizes.height_samples, sizes.height)
        columns = _samples(region[0], region[2], sizes.output_width, sizes.width_samples, sizes.width)
        sums = _bilinear_sums(centred[batch], rows, columns, quantized)
        count = rows.per_pixel * columns.per_pixel
        result[at] = _requantized_mean(op, sums, count) if quantized else sums / np.float32(count)
    return (from_nhwc(result, sizes.nchw),)


@computes(OperationCode.ROI_POOLING)
def roi_pooling(op: OperationView) -> tuple[Array, ...]:
    """Return the greatest element of each output pixel's part of a region; 0 where it lies outside the input."""
    sizes = region_pooling(op)
    image = to_nhwc(op.array("input"), sizes.nchw)
    zero = image.dtype.type(op.input("input").zero_point)
    result = np.empty((sizes.rois, sizes.output_height, sizes.output_width, sizes.depth), image.dtype)
    for at, (batch, region) in enumerate(_regions(op, sizes)):
        corners = round_half_away(region)
        rows, row_empty = _bins(corners[1], corners[3], sizes.output_height, sizes.height)
        columns, column_empty = _bins(corners[0], corners[2], sizes.output_width, sizes.width)
        greatest = image[batch][rows].max(axis=1)[:, columns].max(axis=2)
        result[at] = np.where((row_empty[:, None] | column_empty)[..., None], zero, greatest)
    return (from_nhwc(result, sizes.nchw),)


def _regions(op: OperationView, sizes: RegionPooling) -> Iterator[tuple[int, Array]]:
    """Yield batch and corners x1, y1, x2, y2 in pixels of the input (float32); raises BadData for malformed ones."""
    batches = op.array("batch_index")
    scales = np.float32(1) / np.array([sizes.width_ratio, sizes.height_ratio] * 2, np.float32)
    regions = real_boxes(op, "rois") * scales
    if np.any((batches < 0) | (batches >= sizes.batches)):
        op.fail("batch_index", f"must be in [0, {sizes.batches})", batches.tolist())
    limits = np.array([sizes.width, sizes.height], np.float32)
    first, second = regions[:, :2], regions[:, 2:]
    # All comparisons fail for NaN.
    if not np.all((first >= 0) & (first <= second) & (second <= limits)):
        op.fail("rois", "must have x1 <= x2 and y1 <= y2 inside the image", op.array("rois").tolist())
    yield from zip(batches.tolist(), regions, strict=True)


@dataclass(frozen=True)
class _Samples:
    """Positions of the samples along one axis: `per_pixel` for each output pixel, one after the other."""

    lower: Array
    upper: Array
    upper_weight: Array
    per_pixel: int


def _samples(start: np.float32, end: np.float32, output_size: int, wanted: int, size: int) -> _Samples:
    step = np.maximum(end - start, np.float32(1)) / np.float32(output_size)
    per_pixel = wanted or int(np.ceil(step))
    distance = step / np.float32(per_pixel)
    pixels = step * np.arange(output_size, dtype=np.float32) + start + distance / np.float32(2)
    positions = (pixels[:, None] + distance * np.arange(per_pixel, dtype=np.float32)).reshape(-1)
    lower = np.floor(positions).astype(np.int64)
    outside = lower >= size - 1
    lower[outside] = size - 1
    weight = np.where(outside, np.float32(0), positions - lower.astype(np.float32))
    return _Samples(lower, np.minimum(lower + 1, size - 1), weight, per_pixel)


def _bilinear_sums(image: Array, rows: _Samples, columns: _Samples, quantized: bool) -> Array:
    """Return the sum of the samples of each output pixel; quantised weights are integers up to 255."""
    one, depth = np.float32(1), image.shape[-1]
    total = np.zeros((len(rows.lower), len(columns.lower), depth), image.dtype)
    for row, row_weight in ((rows.lower, one - rows.upper_weight), (rows.upper, rows.upper_weight)):
        lines = image[row]
        for column, column_weight in (
            (columns.lower, one - columns.upper_weight),
            (columns.upper, columns.upper_weight),
        ):
            weights = row_weight[:, None] * column_weight
            if quantized:
                weights = round_half_away(weights / _WEIGHT_SCALE).astype(np.int32)
            total += lines[:, column] * weights[..., None]
    grouped = total.reshape(-1, rows.per_pixel, len(columns.lower) // columns.per_pixel, columns.per_pixel, depth)
    sums: Array = grouped.sum(axis=(1, 3))
    return sums


def _requantized_mean(op: OperationView, sums: Array, count: int) -> Array:
    """Return sums / count in the output's quantisation; of more than 2^16 samples both lose their last places first."""
    output = op.outputs[0]
    scale = np.float32(op.input("input").scale) * _WEIGHT_SCALE / np.float32(output.scale) / np.float32(count)
    spare = max(0, (count - 1).bit_length() - 16)
    if spare:
        sums, scale = (sums + (1 << (spare - 1))) >> spare, np.ldexp(scale, spare)
    multiplier = fixed_point_multiplier(float(scale))
    info = np.iinfo(dtype_of(output.type))
    codes = multiply_by_quantized_multiplier(sums, multiplier.mantissa, multiplier.exponent) + output.zero_point
    return codes.clip(info.min, info.max)


def _bins(start: np.float32, end: np.float32, output_size: int, size: int) -> tuple[Array, Array]:
    """Return the input positions of each output position, and which output positions have none.

    The positions are [output_size, most positions], some of them repeated.
    """
    step = np.maximum(end - start + np.float32(1), np.float32(1)) / np.float32(output_size)
    outputs = np.arange(output_size, dtype=np.float32)
    first = np.minimum(np.floor(step * outputs + start), size).astype(np.int64)
    last = np.minimum(np.ceil(step * (outputs + 1) + start), size).astype(np.int64) - 1
    longest = max(1, int((last - first).max()) + 1)
    positions = np.minimum(first[:, None] + np.arange(longest), last[:, None])
    return positions.clip(0, size - 1), last < first

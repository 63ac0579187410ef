# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR: sizes, and the source positions of each output row and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operations.rules import HAL_1_2_FLOAT_AND_QUANT8, check_same_quantization
from nn_runtime.operations.signature import (
    BOOL,
    INT32,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    float_scalar,
)
from nn_runtime.operations.sliding_window import image_dimensions
from nn_runtime.quantization import round_half_away
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nn_runtime.operand import Array, Dimensions

_SIZE_LIMIT = 2**31


@dataclass(frozen=True)
class Resize:
    """Sizes and coordinate rule of one operation."""

    batches: int
    input_height: int
    input_width: int
    output_height: int
    output_width: int
    depth: int
    nchw: bool
    align_corners: bool
    half_pixel_centers: bool

    @property
    def output_dimensions(self) -> Dimensions:
        """Dimensions of the output in the operation's layout."""
        if self.nchw:
            return (self.batches, self.depth, self.output_height, self.output_width)
        return (self.batches, self.output_height, self.output_width, self.depth)

    def linear_rows(self) -> LinearPositions:
        """Return where each output row lies between input rows."""
        return self._linear(self.input_height, self.output_height)

    def linear_columns(self) -> LinearPositions:
        """Return where each output column lies between input columns."""
        return self._linear(self.input_width, self.output_width)

    def nearest_rows(self) -> Array:
        """Return the input row of each output row (int32)."""
        return self._nearest(self.input_height, self.output_height)

    def nearest_columns(self) -> Array:
        """Return the input column of each output column (int32)."""
        return self._nearest(self.input_width, self.output_width)

    def _scale(self, input_size: int, output_size: int) -> np.float32:
        corners = int(self.align_corners and output_size > 1)
        scale: np.float32 = np.float32(input_size - corners) / np.float32(output_size - corners)
        return scale

    def _linear(self, input_size: int, output_size: int) -> LinearPositions:
        positions = np.arange(output_size, dtype=np.float32)
        half = np.float32(0.5 if self.half_pixel_centers else 0)
        source = (positions + half) * self._scale(input_size, output_size) - half
        lower = np.clip(np.floor(source), 0, input_size - 1).astype(np.int32)
        upper = np.minimum(np.ceil(source), input_size - 1).astype(np.int32)
        return LinearPositions(lower, upper, source - lower.astype(np.float32))

    def _nearest(self, input_size: int, output_size: int) -> Array:
        positions = np.arange(output_size, dtype=np.float32)
        half = np.float32(0.5 if self.half_pixel_centers else 0)
        source = (positions + half) * self._scale(input_size, output_size)
        rounded = round_half_away(source) if self.align_corners else np.floor(source)
        nearest: Array = np.clip(rounded, 0, input_size - 1).astype(np.int32)
        return nearest


@dataclass(frozen=True)
class LinearPositions:
    """Per output position: the two input positions (int32) and the weight of the upper one (float32).

    The weight may lie outside 0..1 where both are the same position at a border.
    """

    lower: Array
    upper: Array
    weight: Array


def resize_geometry(op: OperationView) -> Resize:
    """Return sizes and coordinate rule; raises BadData for an output size < 1 or contradicting rules."""
    batches, height, width, depth = image_dimensions(op)
    align_corners, half_pixel_centers = op.bool_value("align_corners"), op.bool_value("half_pixel_centers")
    if align_corners and half_pixel_centers:
        op.fail("half_pixel_centers", "must be false where align_corners is true", half_pixel_centers)
    return Resize(
        batches,
        height,
        width,
        _output_size(op, "height", height),
        _output_size(op, "width", width),
        depth,
        op.bool_value("layout"),
        align_corners,
        half_pixel_centers,
    )


def _output_size(op: OperationView, side: str, input_size: int) -> int:
    if op.position(f"output_{side}") >= 0:
        size = op.int_value(f"output_{side}")
        if size <= 0:
            op.fail(f"output_{side}", "must be > 0", size)
        return size
    scale = op.float_value(f"{side}_scale")
    scaled = float(np.float32(input_size)) * scale
    if not 1 <= np.float32(scaled) < _SIZE_LIMIT:
        op.fail(f"{side}_scale", f"must give an output size from 1 to 2^31 - 1 for {input_size}", scale)
    return int(np.float32(scaled))


def _check(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return FeatureLevel.HAL_1_0


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (resize_geometry(op).output_dimensions,)


def _define(code: OperationCode, layout: Input, data_types: Mapping[int, FeatureLevel]) -> None:
    data = Input("input", rank=(4, 4))
    tail = (
        layout,
        Input("align_corners", BOOL, optional=True, since=FeatureLevel.HAL_1_3),
        Input("half_pixel_centers", BOOL, optional=True, since=FeatureLevel.HAL_1_3),
    )
    by_size = Variant((data, Input("output_width", INT32), Input("output_height", INT32), *tail), name="by size")
    by_scale = Variant(
        (
            data,
            Input("width_scale", float_scalar, since=FeatureLevel.HAL_1_2),
            Input("height_scale", float_scalar, since=FeatureLevel.HAL_1_2),
            *tail,
        ),
        name="by scale",
    )
    outputs = (Output("output", rank=(4, 4)),)
    define(Definition(code, (by_size, by_scale), outputs, data_types, _prepare, _check, zero_sized_ok=True))


_define(
    OperationCode.RESIZE_BILINEAR,
    Input("layout", BOOL, optional=True, since=FeatureLevel.HAL_1_2),
    {**HAL_1_2_FLOAT_AND_QUANT8, OperandCode.TENSOR_FLOAT32: FeatureLevel.HAL_1_0},
)
_define(OperationCode.RESIZE_NEAREST_NEIGHBOR, Input("layout", BOOL), HAL_1_2_FLOAT_AND_QUANT8)

# SPDX-License-Identifier: Apache-2.0
"""ROI_ALIGN and ROI_POOLING: regions of a feature map brought to one size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.rules import HAL_1_2_FLOAT_AND_QUANT8, check_same_quantization
from nn_runtime.operations.signature import (
    BOOL,
    INT32,
    INT32_TENSOR,
    Definition,
    Input,
    OperationView,
    Output,
    Variant,
    define,
    float_scalar,
)
from nn_runtime.operations.sliding_window import image_dimensions
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Dimensions

ROI_SCALE = 0.125
"""Scale of 16-bit box coordinates; their zero point is 0."""
_MOST_SAMPLES = 1 << 15
"""Of one output pixel: the sum of so many 8-bit samples, weighted by up to 255, fits 32 bits."""


@dataclass(frozen=True)
class RegionPooling:
    """Sizes of one operation: input [batches, height, width, depth], output [rois, output_height, output_width, depth].

    Both may have depth second (`nchw`). Regions x1, y1, x2, y2 are in pixels of an image `height_ratio` and
    `width_ratio` times as large as the input. `height_samples` and `width_samples` (ROI_ALIGN) are per output pixel;
    0 asks for as many as the pixel has input pixels, rounded up.
    """

    rois: int
    batches: int
    height: int
    width: int
    depth: int
    output_height: int
    output_width: int
    height_ratio: float
    width_ratio: float
    height_samples: int
    width_samples: int
    nchw: bool

    @property
    def output_dimensions(self) -> Dimensions:
        """Dimensions of the output in the operation's layout."""
        if self.nchw:
            return (self.rois, self.depth, self.output_height, self.output_width)
        return (self.rois, self.output_height, self.output_width, self.depth)


def region_pooling(op: OperationView) -> RegionPooling:
    """Return the sizes of a ROI_ALIGN or ROI_POOLING; raises BadData."""
    batches, height, width, depth = image_dimensions(op)
    rois = op.dimensions("rois")
    if batches == 0:
        op.fail("input", "must have at least one batch", list(op.dimensions("input")))
    if len(rois) != 2 or rois[1] != 4:
        op.fail("rois", "must have dimensions [n, 4]", list(rois))
    if op.dimensions("batch_index") != rois[:1]:
        op.fail("batch_index", f"must have dimensions [{rois[0]}]", list(op.dimensions("batch_index")))
    height_samples, width_samples = _at_least(op, "height_samples", 0), _at_least(op, "width_samples", 0)
    if max(1, height_samples) * max(1, width_samples) > _MOST_SAMPLES:
        samples = [height_samples, width_samples]
        op.fail("height_samples", f"times width_samples must be at most {_MOST_SAMPLES}", samples)
    return RegionPooling(
        rois[0],
        batches,
        height,
        width,
        depth,
        _at_least(op, "out_height", 1),
        _at_least(op, "out_width", 1),
        _ratio(op, "height_ratio"),
        _ratio(op, "width_ratio"),
        height_samples,
        width_samples,
        op.bool_value("layout"),
    )


def roi_types(data_type: int) -> Iterable[int]:
    """Allow the data type for floats, TENSOR_QUANT16_ASYMM for 8-bit data."""
    return (OperandCode.TENSOR_QUANT16_ASYMM,) if data_type in QUANT8_TYPES else (data_type,)


def check_roi_quantization(op: OperationView, *names: str) -> None:
    """Check that 16-bit boxes have scale 0.125 and zero point 0; raises BadData."""
    for name in names:
        operand = op.input(name)
        quantized = operand.type in (OperandCode.TENSOR_QUANT16_ASYMM, OperandCode.TENSOR_QUANT16_SYMM)
        if quantized and (operand.scale != ROI_SCALE or operand.zero_point != 0):
            op.fail(name, f"must have scale {ROI_SCALE} and zero point 0", [operand.scale, operand.zero_point])


def _at_least(op: OperationView, name: str, least: int) -> int:
    value = op.int_value(name, 0)
    if value < least:
        op.fail(name, f"must be >= {least}", value)
    return value


def _ratio(op: OperationView, name: str) -> float:
    value = op.float_value(name)
    if not value > 0:
        op.fail(name, "must be > 0", value)
    return value


def _check_align(op: OperationView) -> FeatureLevel:
    check_roi_quantization(op, "rois")
    return FeatureLevel.HAL_1_2


def _check_pooling(op: OperationView) -> FeatureLevel:
    check_same_quantization(op, op.input("input"))
    return _check_align(op)


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    return (region_pooling(op).output_dimensions,)


_REGIONS = (
    Input("input", rank=(4, 4)),
    Input("rois", roi_types, (2, 2)),
    Input("batch_index", INT32_TENSOR, (1, 1)),
    Input("out_height", INT32),
    Input("out_width", INT32),
    Input("height_ratio", float_scalar),
    Input("width_ratio", float_scalar),
)


define(
    Definition(
        OperationCode.ROI_ALIGN,
        (
            Variant(
                (*_REGIONS, Input("height_samples", INT32), Input("width_samples", INT32), Input("layout", BOOL)),
            ),
        ),
        (Output("output", rank=(4, 4)),),
        HAL_1_2_FLOAT_AND_QUANT8,
        _prepare,
        _check_align,
        zero_sized_ok=True,
    )
)

define(
    Definition(
        OperationCode.ROI_POOLING,
        (Variant((*_REGIONS, Input("layout", BOOL))),),
        (Output("output", rank=(4, 4)),),
        HAL_1_2_FLOAT_AND_QUANT8,
        _prepare,
        _check_pooling,
    )
)

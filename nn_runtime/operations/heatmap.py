# SPDX-License-Identifier: Apache-2.0
"""HEATMAP_MAX_KEYPOINT: the best position of each keypoint in the heatmap of each box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.rules import HAL_1_2_TYPES
from nn_runtime.operations.signature import BOOL, Definition, Input, OperationView, Output, Variant, define

if TYPE_CHECKING:
    from nn_runtime.operand import Dimensions

BOX_SCALE = 0.125
"""Scale of the 16-bit coordinates of boxes and keypoints."""
MAXIMUM_STEP = 1.5
"""Greatest correction of a position, in pixels of the heatmap."""


def singular_tolerance(data_type: int) -> float:
    """Return t: positions whose Hessian has |determinant| < t + t * product of its diagonal are not corrected."""
    return 1e-3 if data_type == OperandCode.TENSOR_FLOAT16 else 1e-5


def _box_types(data_type: int) -> tuple[int, ...]:
    return (OperandCode.TENSOR_QUANT16_ASYMM,) if data_type in QUANT8_TYPES else (data_type,)


def heatmap_sizes(op: OperationView) -> tuple[int, int, int]:
    """Return the numbers of boxes, of pixels along a side of a heatmap, and of keypoints; raises BadData."""
    dims = op.dimensions("heatmaps")
    if len(dims) != 4:
        op.fail("heatmaps", "must have rank 4", list(dims))
    boxes, height, width, keypoints = (dims[0], dims[2], dims[3], dims[1]) if op.bool_value("layout") else dims
    if height != width or height < 2:
        op.fail("heatmaps", "must be square and at least 2 x 2", f"{height} x {width}")
    if op.dimensions("boxes") != (boxes, 4):
        op.fail("boxes", f"must have dimensions [{boxes}, 4]", list(op.dimensions("boxes")))
    return boxes, height, keypoints


def _check(op: OperationView) -> FeatureLevel:
    if op.data_type in QUANT8_TYPES:
        for name, operand in (("boxes", op.input("boxes")), ("output 1", op.outputs[1])):
            if (operand.scale, operand.zero_point) != (BOX_SCALE, 0):
                got = f"{operand.scale} and {operand.zero_point}"
                op.fail(name, f"must have scale {BOX_SCALE} and zero point 0", got)
    return FeatureLevel.HAL_1_2


def _prepare(op: OperationView) -> tuple[Dimensions, ...]:
    boxes, _size, keypoints = heatmap_sizes(op)
    return (boxes, keypoints), (boxes, keypoints, 2)


define(
    Definition(
        OperationCode.HEATMAP_MAX_KEYPOINT,
        (Variant((Input("heatmaps", rank=(4, 4)), Input("boxes", _box_types, (2, 2)), Input("layout", BOOL))),),
        (Output("scores", rank=(2, 2)), Output("keypoints", _box_types, (3, 3))),
        {code: since for code, since in HAL_1_2_TYPES.items() if code != OperandCode.TENSOR_INT32},
        _prepare,
        _check,
    )
)

# SPDX-License-Identifier: Apache-2.0
"""AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, GENERATE_PROPOSALS and DETECTION_POSTPROCESSING."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nn_runtime.codes import FeatureLevel, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES
from nn_runtime.operations.roi import check_roi_quantization, roi_types
from nn_runtime.operations.rules import HAL_1_2_FLOAT_AND_QUANT8, HAL_1_2_FLOATS, check_same_quantization
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
from nn_runtime.value_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nn_runtime.operand import Dimensions

NMS_HARD, NMS_LINEAR, NMS_GAUSSIAN = 0, 1, 2


@dataclass(frozen=True)
class BoxTransform:
    """Sizes of an AXIS_ALIGNED_BBOX_TRANSFORM: rois [rois, 4], deltas [rois, classes * 4], image_info [batches, 2]."""

    rois: int
    classes: int
    batches: int


@dataclass(frozen=True)
class BoxLimit:
    """Sizes and parameters of a BOX_WITH_NMS_LIMIT: scores [rois, classes], boxes [rois, classes * 4].

    `max_boxes` is per batch, < 0 for no limit; `kernel` is one of NMS_HARD, NMS_LINEAR, NMS_GAUSSIAN.
    """

    rois: int
    classes: int
    score_threshold: float
    max_boxes: int
    kernel: int
    iou_threshold: float
    sigma: float
    nms_score_threshold: float


@dataclass(frozen=True)
class Proposals:
    """Sizes and parameters of a GENERATE_PROPOSALS: scores [batches, height, width, anchors], or anchors second.

    The limits are per batch, < 0 for none.
    """

    batches: int
    height: int
    width: int
    anchors: int
    height_stride: float
    width_stride: float
    pre_nms_max: int
    post_nms_max: int
    iou_threshold: float
    min_size: float
    nchw: bool


@dataclass(frozen=True)
class DetectionPostprocessing:
    """Sizes and parameters of a DETECTION_POSTPROCESSING: scores [batches, anchors, classes].

    A row of the outputs has room for `rows` detections: max_detections, in fast NMS times the classes per detection.
    `scales` divide the deltas y, x, h, w.
    """

    batches: int
    anchors: int
    classes: int
    scales: tuple[float, float, float, float]
    regular_nms: bool
    max_detections: int
    max_classes_per_detection: int
    max_detections_per_class: int
    score_threshold: float
    iou_threshold: float
    background_in_labels: bool

    @property
    def rows(self) -> int:
        """Number of detections that the outputs have room for per batch."""
        return self.max_detections * (1 if self.regular_nms else self.max_classes_per_detection)


def box_transform(op: OperationView) -> BoxTransform:
    """Return the sizes of an AXIS_ALIGNED_BBOX_TRANSFORM; raises BadData."""
    rois, deltas, image = op.dimensions("roi"), op.dimensions("deltas"), op.dimensions("image_info")
    if len(rois) != 2 or rois[1] != 4:
        op.fail("roi", "must have dimensions [n, 4]", list(rois))
    if len(deltas) != 2 or deltas[0] != rois[0] or deltas[1] < 4 or deltas[1] % 4:
        op.fail("deltas", f"must have dimensions [{rois[0]}, classes * 4]", list(deltas))
    if op.dimensions("batch_index") != rois[:1]:
        op.fail("batch_index", f"must have dimensions [{rois[0]}]", list(op.dimensions("batch_index")))
    if len(image) != 2 or image[0] == 0 or image[1] != 2:
        op.fail("image_info", "must have dimensions [batches, 2]", list(image))
    return BoxTransform(rois[0], deltas[1] // 4, image[0])


def box_limit(op: OperationView) -> BoxLimit:
    """Return sizes and parameters of a BOX_WITH_NMS_LIMIT; raises BadData."""
    scores, boxes = op.dimensions("scores"), op.dimensions("boxes")
    if len(scores) != 2 or scores[1] == 0:
        op.fail("scores", "must have dimensions [n, classes]", list(scores))
    rois, classes = scores
    if boxes != (rois, classes * 4):
        op.fail("boxes", f"must have dimensions {[rois, classes * 4]}", list(boxes))
    if op.dimensions("batch_index") != (rois,):
        op.fail("batch_index", f"must have dimensions [{rois}]", list(op.dimensions("batch_index")))
    kernel, sigma = op.int_value("nms_kernel"), op.float_value("sigma")
    if kernel not in (NMS_HARD, NMS_LINEAR, NMS_GAUSSIAN):
        op.fail("nms_kernel", "must be 0, 1 or 2", kernel)
    if kernel == NMS_GAUSSIAN and not sigma > 0:
        op.fail("sigma", "must be > 0", sigma)
    return BoxLimit(
        rois,
        classes,
        op.float_value("score_threshold"),
        op.int_value("max_num_boxes"),
        kernel,
        op.float_value("iou_threshold"),
        sigma,
        op.float_value("nms_score_threshold"),
    )


def proposals(op: OperationView) -> Proposals:
    """Return sizes and parameters of a GENERATE_PROPOSALS; raises BadData."""
    nchw = op.bool_value("layout")
    batches, height, width, anchors = _image(op, "scores", nchw)
    wanted: dict[str, Dimensions] = {"anchors": (anchors, 4), "image_info": (batches, 2)}
    for name, dims in wanted.items():
        if op.dimensions(name) != dims:
            op.fail(name, f"must have dimensions {list(dims)}", list(op.dimensions(name)))
    if _image(op, "deltas", nchw) != (batches, height, width, anchors * 4):
        op.fail("deltas", f"must have the scores' sizes and depth {anchors * 4}", list(op.dimensions("deltas")))
    return Proposals(
        batches,
        height,
        width,
        anchors,
        op.float_value("height_stride"),
        op.float_value("width_stride"),
        _positive_or_unlimited(op, "pre_nms_max"),
        _positive_or_unlimited(op, "post_nms_max"),
        op.float_value("iou_threshold"),
        op.float_value("min_size"),
        nchw,
    )


def detection_postprocessing(op: OperationView) -> DetectionPostprocessing:
    """Return sizes and parameters of a DETECTION_POSTPROCESSING; raises BadData."""
    scores, deltas = op.dimensions("scores"), op.dimensions("deltas")
    if len(scores) != 3 or 0 in scores or scores[2] < 2:
        op.fail("scores", "must have rank 3, no size 0 and at least 2 classes", list(scores))
    batches, anchors, classes = scores
    if len(deltas) != 3 or deltas[:2] != (batches, anchors) or deltas[2] < 4:
        op.fail("deltas", f"must have dimensions [{batches}, {anchors}, >= 4]", list(deltas))
    if op.dimensions("anchors") != (anchors, 4):
        op.fail("anchors", f"must have dimensions [{anchors}, 4]", list(op.dimensions("anchors")))
    regular = op.bool_value("regular_nms")
    for name in ("max_detections", "max_detections_per_class" if regular else "max_classes_per_detection"):
        if op.int_value(name) < 1:
            op.fail(name, "must be > 0", op.int_value(name))
    for name in ("score_threshold", "iou_threshold"):
        if not op.float_value(name) >= 0:
            op.fail(name, "must be >= 0", op.float_value(name))
    return DetectionPostprocessing(
        batches,
        anchors,
        classes,
        (_scale(op, "y"), _scale(op, "x"), _scale(op, "h"), _scale(op, "w")),
        regular,
        op.int_value("max_detections"),
        op.int_value("max_classes_per_detection"),
        op.int_value("max_detections_per_class"),
        op.float_value("score_threshold"),
        op.float_value("iou_threshold"),
        op.bool_value("background_in_labels"),
    )


def _positive_or_unlimited(op: OperationView, name: str) -> int:
    limit = op.int_value(name)
    return limit if limit > 0 else -1


def _image(op: OperationView, name: str, nchw: bool) -> Dimensions:
    """Return batches, height, width and depth of an input, whatever its layout."""
    dims = op.dimensions(name)
    if len(dims) != 4 or 0 in dims:
        op.fail(name, "must have rank 4 and no size 0", list(dims))
    return (dims[0], dims[2], dims[3], dims[1]) if nchw else dims


def _scale(op: OperationView, axis: str) -> float:
    value = op.float_value(f"scale_{axis}")
    if not value > 0:
        op.fail(f"scale_{axis}", "must be > 0", value)
    return value


def _delta_types(data_type: int) -> Iterable[int]:
    return QUANT8_TYPES if data_type == OperandCode.TENSOR_QUANT16_ASYMM else (data_type,)


def _anchor_types(data_type: int) -> Iterable[int]:
    return (OperandCode.TENSOR_QUANT16_SYMM,) if data_type in QUANT8_TYPES else (data_type,)


def _check_transform(op: OperationView) -> FeatureLevel:
    check_roi_quantization(op, "roi", "image_info")
    check_same_quantization(op, op.input("roi"))
    signed = op.input("deltas").type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    return FeatureLevel.HAL_1_3 if signed else FeatureLevel.HAL_1_2


def _check_limit(op: OperationView) -> FeatureLevel:
    check_roi_quantization(op, "boxes")
    check_same_quantization(op, op.input("scores"))
    return FeatureLevel.HAL_1_2


def _check_proposals(op: OperationView) -> FeatureLevel:
    check_roi_quantization(op, "anchors", "image_info")
    check_same_quantization(op, op.input("scores"))
    return FeatureLevel.HAL_1_2


def _prepare_transform(op: OperationView) -> tuple[Dimensions, ...]:
    sizes = box_transform(op)
    return ((sizes.rois, sizes.classes * 4),)


def _prepare_limit(op: OperationView) -> tuple[Dimensions, ...]:
    limit = box_limit(op)
    most = limit.rois * (limit.classes - 1)
    return (most,), (most, 4), (most,), (most,)


def _prepare_proposals(op: OperationView) -> tuple[Dimensions, ...]:
    sizes = proposals(op)
    most = sizes.height * sizes.width * sizes.anchors
    for limit in (sizes.pre_nms_max, sizes.post_nms_max):
        most = most if limit < 0 else min(most, limit)
    return (sizes.batches * most,), (sizes.batches * most, 4), (sizes.batches * most,)


def _prepare_postprocessing(op: OperationView) -> tuple[Dimensions, ...]:
    sizes = detection_postprocessing(op)
    rows = (sizes.batches, sizes.rows)
    return rows, (*rows, 4), rows, (sizes.batches,)


define(
    Definition(
        OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM,
        (
            Variant(
                (
                    Input("roi", rank=(2, 2)),
                    Input("deltas", _delta_types, (2, 2)),
                    Input("batch_index", INT32_TENSOR, (1, 1)),
                    Input("image_info", rank=(2, 2)),
                )
            ),
        ),
        (Output("output", rank=(2, 2)),),
        {**HAL_1_2_FLOATS, OperandCode.TENSOR_QUANT16_ASYMM: FeatureLevel.HAL_1_2},
        _prepare_transform,
        _check_transform,
        zero_sized_ok=True,
    )
)

define(
    Definition(
        OperationCode.BOX_WITH_NMS_LIMIT,
        (
            Variant(
                (
                    Input("scores", rank=(2, 2)),
                    Input("boxes", roi_types, (2, 2)),
                    Input("batch_index", INT32_TENSOR, (1, 1)),
                    Input("score_threshold", float_scalar),
                    Input("max_num_boxes", INT32),
                    Input("nms_kernel", INT32),
                    Input("iou_threshold", float_scalar),
                    Input("sigma", float_scalar),
                    Input("nms_score_threshold", float_scalar),
                )
            ),
        ),
        (
            Output("scores_out", rank=(1, 1)),
            Output("boxes_out", roi_types, (2, 2)),
            Output("classes_out", INT32_TENSOR, (1, 1)),
            Output("batch_out", INT32_TENSOR, (1, 1)),
        ),
        HAL_1_2_FLOAT_AND_QUANT8,
        _prepare_limit,
        _check_limit,
        zero_sized_ok=True,
        data_dependent=True,
    )
)

define(
    Definition(
        OperationCode.GENERATE_PROPOSALS,
        (
            Variant(
                (
                    Input("scores", rank=(4, 4)),
                    Input("deltas", rank=(4, 4)),
                    Input("anchors", _anchor_types, (2, 2)),
                    Input("image_info", roi_types, (2, 2)),
                    Input("height_stride", float_scalar),
                    Input("width_stride", float_scalar),
                    Input("pre_nms_max", INT32),
                    Input("post_nms_max", INT32),
                    Input("iou_threshold", float_scalar),
                    Input("min_size", float_scalar),
                    Input("layout", BOOL),
                )
            ),
        ),
        (
            Output("scores_out", rank=(1, 1)),
            Output("rois_out", roi_types, (2, 2)),
            Output("batch_out", INT32_TENSOR, (1, 1)),
        ),
        HAL_1_2_FLOAT_AND_QUANT8,
        _prepare_proposals,
        _check_proposals,
        data_dependent=True,
    )
)

define(
    Definition(
        OperationCode.DETECTION_POSTPROCESSING,
        (
            Variant(
                (
                    Input("scores", rank=(3, 3)),
                    Input("deltas", rank=(3, 3)),
                    Input("anchors", rank=(2, 2)),
                    *(Input(f"scale_{axis}", float_scalar) for axis in "yxhw"),
                    Input("regular_nms", BOOL),
                    Input("max_detections", INT32),
                    Input("max_classes_per_detection", INT32),
                    Input("max_detections_per_class", INT32),
                    Input("score_threshold", float_scalar),
                    Input("iou_threshold", float_scalar),
                    Input("background_in_labels", BOOL),
                )
            ),
        ),
        (
            Output("scores_out", rank=(2, 2)),
            Output("boxes_out", rank=(3, 3)),
            Output("classes_out", INT32_TENSOR, (2, 2)),
            Output("count_out", INT32_TENSOR, (1, 1)),
        ),
        HAL_1_2_FLOATS,
        _prepare_postprocessing,
        lambda _op: FeatureLevel.HAL_1_2,
    )
)

# SPDX-License-Identifier: Apache-2.0
"""TFLite_Detection_PostProcess, the custom operator at the end of single-shot detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nn_runtime.codes import FuseCode, OperandCode, OperationCode
from nn_runtime.operand import QUANT8_TYPES, dtype_of
from nn_runtime.tflite.custom_options import numbers
from nn_runtime.tflite.operators import converts
from nn_runtime.tflite.values import Value, constant, int32, scalar

if TYPE_CHECKING:
    from nn_runtime.tflite.operator import Operator

_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
_LIMITS = ("max_detections", "max_classes_per_detection", "detections_per_class")
_THRESHOLDS = ("nms_score_threshold", "nms_iou_threshold")
_NAMES = (*_SCALES, *_LIMITS, *_THRESHOLDS, "num_classes", "use_regular_nms")
_DEFAULTS = {"detections_per_class": 100.0, "use_regular_nms": 0.0}
"""What TFLite takes where the options do not say."""


@converts("TFLite_Detection_PostProcess", inputs=3, outputs=4)
def _detection_postprocess(op: Operator) -> None:
    """(boxes [batches, anchors, 4], scores [batches, anchors, classes], anchors [anchors, 4]).

    Outputs: boxes, classes, scores and their number, all real.
    """
    options = {**_DEFAULTS, **numbers(op, _NAMES)}
    missing = [name for name in _NAMES if name not in options]
    if missing:
        op.fail(f"option {missing[0]} is missing")
    boxes, scores, anchors = (op.dequantize(op.input(at, f"input {at}")) for at in range(3))
    scores = _with_background(op, scores, int(options["num_classes"]))
    scores, least = _reaching(op, scores, options["nms_score_threshold"])
    overlap = np.nextafter(np.float32(options["nms_iou_threshold"]), np.float32(np.inf))  # NNAPI drops equal ones, too
    inputs = [
        *(scores, boxes, anchors),
        *(scalar(OperandCode.FLOAT32, options[name]) for name in _SCALES),
        scalar(OperandCode.BOOL, bool(options["use_regular_nms"])),
        *(int32(int(options[name])) for name in _LIMITS),
        *(scalar(OperandCode.FLOAT32, float(threshold)) for threshold in (least, overlap)),
        scalar(OperandCode.BOOL, False),
    ]
    reals, integers = Value(OperandCode.TENSOR_FLOAT32), Value(OperandCode.TENSOR_INT32)
    code = OperationCode.DETECTION_POSTPROCESSING
    found_scores, found_boxes, classes, count = op.emit_many(code, inputs, [reals, reals, integers, integers])
    op.result(found_boxes, 0)
    op.result(op.emit(OperationCode.CAST, [classes], reals), 1)
    op.result(found_scores, 2)
    op.result(op.emit(OperationCode.CAST, [count], reals), 3)


def _reaching(op: Operator, scores: Value, threshold: float) -> tuple[Value, np.float32]:
    """Return scores, and the threshold that those above it exceed which reach the given one: NNAPI keeps no equal ones.

    There is no threshold below 0, so that scores grow instead, by less than any but 0 has in its last place; one below
    is none where scores are.
    """
    least = np.float32(threshold)
    if least < 0:
        if not _are_never_negative(op.input(1, "scores")):
            op.fail(f"nms_score_threshold must be >= 0 for scores that can be negative, got {threshold:g}")
        least = np.float32(0)
    if least == 0:
        tiny = constant(np.full((1, 1, 1), np.finfo(np.float32).tiny, np.float32))
        return op.emit(OperationCode.ADD, [scores, tiny, int32(FuseCode.NONE)], scores), least
    return scores, np.nextafter(least, np.float32(-np.inf))


def _are_never_negative(scores: Value) -> bool:
    return scores.type in QUANT8_TYPES and scores.zero_point == np.iinfo(dtype_of(scores.type)).min


def _with_background(op: Operator, scores: Value, classes: int) -> Value:
    """Return scores [batches, anchors, 1 + classes]: NNAPI's first class is the background."""
    if scores.rank != 3:
        op.fail(f"scores (input 1) must have rank 3, got {list(scores.shape or ())}")
    batches, anchors, columns = scores.shape or (0, 0, 0)
    if columns == classes + 1:
        return scores
    if columns != classes:
        op.fail(f"scores (input 1) must have {classes} or {classes + 1} classes, got {columns}")
    background = constant(np.zeros((batches, anchors, 1), np.float32))
    return op.emit(OperationCode.CONCATENATION, [background, scores, int32(2)], scores)
